"""Records as lines of a table, and in words."""

from __future__ import annotations

from datetime import UTC, datetime

from redbox.box.texts.record_json import as_json, formatted
from redbox.durations import format_duration
from redbox.events import Phase, Record

__all__ = ["as_json", "brief_time", "formatted", "iso", "key_of", "phase_in_words", "phase_word"]


def iso(moment: datetime | None, *, brief: bool = False) -> str:
    """The time in ISO 8601 and UTC, to milliseconds or, if brief, seconds; empty for None."""
    if moment is None:
        return ""
    return moment.astimezone(UTC).isoformat(timespec="seconds" if brief else "milliseconds").replace("+00:00", "Z")


def took(seconds: float | None) -> str:
    """How long an attempt took; `-` if that is not known."""
    return "-" if seconds is None else format_duration(seconds)


def published(record: Record) -> str | None:
    """`2026-01-01T00:00:00.000Z by relay-1, 250 ms after its claim`; None if it was not published."""
    if record.published_at is None:
        return None
    after = "" if record.published_seconds is None else f", {took(record.published_seconds)} after its claim"
    return f"{iso(record.published_at)} by {record.published_by}{after}"


def brief_time(moment: datetime | None, now: datetime | None) -> str:
    """For a table: `3 min ago`, `in 2 h`; without `now`, the time in ISO 8601. Empty for None."""
    if moment is None or now is None:
        return iso(moment, brief=True)
    seconds = int((moment - now).total_seconds())
    count, unit = format_duration(abs(seconds) or 1).split()[:2]
    return f"in {count} {unit}" if seconds > 0 else f"{count} {unit} ago"


def phase_word(record: Record) -> str:
    """The phase, as `stats` counts it, with `waiting` for an event behind the head of its line; or DAMAGED."""
    if record.damaged:
        return "DAMAGED"
    return f"{record.phase.value} waiting" if record.waiting else record.phase.value


def key_of(record: Record) -> str:
    """The ordering key, else the unique key."""
    return record.event.ordering_key or record.event.unique_key or ""


def phase_in_words(record: Record, now: datetime, paused: bool) -> str:
    """The phase of the event as a sentence, with the next step."""

    def since(moment: datetime | None) -> str:
        return format_duration(now - (moment or now))

    if record.damaged:
        published = record.phase is Phase.COMPLETED
        remedy = "it cannot be delivered: put it again from its source or the archive, with another id"
        return f"{record.problem}; {'it was published before' if published else remedy}"
    ahead = format_duration(record.available_at - now)
    if record.phase is Phase.COMPLETED:
        return f"published {since(record.published_at)} ago by {record.published_by or 'an unknown relay'}"
    if record.phase is Phase.DEAD and record.superseded_by:
        return f"died {since(record.died_at)} ago; superseded by event {record.superseded_by}"
    if record.phase is Phase.DEAD:
        return f"died {since(record.died_at)} ago; `redbox dead replay {record.event_id}` returns it to PENDING"
    if record.phase is Phase.IN_FLIGHT:
        assert record.lease_until is not None
        if record.lease_until > now:
            return f"claimed by {record.claimed_by}; the lease ends in {format_duration(record.lease_until - now)}"
        over = f"the lease ended {since(record.lease_until)} ago; the next reap returns it to PENDING"
        return f"claimed by {record.claimed_by}, but {over}"
    if record.waiting:
        due = "" if record.phase is Phase.AVAILABLE else f"due in {ahead}, and "
        line = f"waits in the line of ordering key {record.event.ordering_key!r}"
        return f"{due}{line}; `redbox why {record.event_id}` says for what"
    if record.phase is Phase.SCHEDULED:
        return f"due in {ahead}"
    if record.phase is Phase.RETRY_SCHEDULED:
        return f"failed; the next attempt is in {ahead}"
    text = f"due for {since(record.available_at)}, and not claimed yet"
    if record.suspect:
        text += "; it is claimed alone, since two leases in a row expired"
    return text + ("; but the box is paused" if paused else "")
