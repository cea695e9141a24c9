"""A box as text: counts by phase, rates, alarms and relays."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

import click

from redbox.arguments import counted
from redbox.cli import records
from redbox.cli.output import STYLES, printable
from redbox.cli.session import Session
from redbox.durations import format_duration

if TYPE_CHECKING:
    from redbox.box.rates import Rates
    from redbox.box.reports import RelayReport, Stats

BAR_WIDTH: Final = 20
PENDING: Final = ("AVAILABLE", "SCHEDULED", "RETRY_SCHEDULED")
LONGEST_ERROR: Final = 60  # characters of the last error of a relay


def show(session: Session, stats: Stats, rates: Rates) -> None:
    """Prints the box."""
    output = session.output
    output.text(f"box {stats.box} on {session.where} at {records.iso(stats.at)}", "bold")
    for text in pauses(stats):
        output.text(text, "bold red")
    counts = {phase.value: count for phase, count in stats.phases.items()}
    counts = {"AVAILABLE": counts.pop("AVAILABLE"), **counts}
    remarks = phase_remarks(stats)
    most, width = max(counts.values()), max(len(f"{count:,}") for count in counts.values())
    for phase, count in counts.items():
        _line(session, phase, f"{count:>{width},}", bar(count, most), remarks.get(phase, ""))
    if stats.waiting:
        verb = "waits" if stats.waiting == 1 else "wait"
        text = f"of which {stats.waiting:,} {verb} behind another event of the same ordering key"
        if stats.oldest_waiting is not None and stats.oldest_waiting > timedelta(0):
            text += f"; oldest {format_duration(stats.oldest_waiting)}"
        output.text(text)
    if stats.next_due is not None:
        output.text(f"next due in {format_duration(stats.next_due)}")  # the first of SCHEDULED and RETRY_SCHEDULED
    if text := rates_in_words(rates):
        output.text(text)
    for text in no_relay(stats) + alarms(stats):
        output.text(text, "red")
    if stats.totals:
        output.text("totals  " + ", ".join(f"{name} {count:,}" for name, count in sorted(stats.totals.items())))
    if stats.relays:
        output.text("")
        output.table(
            ("RELAY", "TARGET", "SEEN", "HOST", "IN FLIGHT", "PUBLISHED", "FAILED", "BREAKER", "LAST ERROR"),
            [_relay_row(relay) for relay in stats.relays],
            right=("IN FLIGHT", "PUBLISHED", "FAILED"),
        )


def pauses(stats: Stats) -> list[str]:
    """The pause of the box with who, why and until when; the paused keys; the ramp."""
    found = []
    if stats.paused:
        pause, text = stats.pause, "PAUSED: no event is claimed until the box is resumed"
        if pause is not None and pause.until is not None:
            text = f"PAUSED: no event is claimed for {format_duration(pause.until - stats.at)} more"
        if pause is not None and pause.who:
            since = "" if pause.since is None else f", {format_duration(stats.at - pause.since)} ago"
            text += f" (by {printable(pause.who)}{since}{': ' if pause.why else ''}{printable(pause.why)})"
        found.append(text)
    if stats.paused_keys:
        found.append(f"{counted(stats.paused_keys, 'paused ordering key')}: `redbox resume --key KEY` resumes one")
    if stats.ramp_ends is not None:
        found.append(f"RAMP: the rate of claims is limited for {format_duration(stats.ramp_ends)} more")
    return found


def rates_in_words(rates: Rates) -> str:
    """`rates   put 3.1/s, published 3.0/s`; empty if none is known."""
    known = {name: getattr(rates, name) for name in ("put", "published", "failed")}
    words = ", ".join(f"{name} {format_rate(value)}" for name, value in known.items() if value is not None)
    if not words:
        return ""
    source = "reported by the relays" if rates.seconds is None else f"over {format_duration(rates.seconds)}"
    return f"rates   {words} ({source})"


def format_rate(rate: float) -> str:
    """`0.5/s`, `12/s`, `1,250/s`."""
    return f"{rate:,.0f}/s" if rate >= 10 or rate == int(rate) else f"{rate:.1f}/s"


def _relay_row(relay: RelayReport) -> tuple[str, ...]:
    ago = format_duration(relay.seen)
    return (
        relay.name,
        relay.target,
        f"{ago} ago" if relay.alive else f"silent for {ago}",
        f"{relay.host} ({relay.pid})",
        f"{relay.in_flight:,}",
        f"{relay.published:,}",
        f"{relay.failed:,}",
        breaker_in_words(relay),
        last_error(relay),
    )


def breaker_in_words(relay: RelayReport) -> str:
    """`open for 3 min: HTTP 503`."""
    since = "" if relay.breaker_since is None else f" for {format_duration(relay.breaker_since)}"
    return f"{relay.breaker}{since}{': ' if relay.reason else ''}{relay.reason}"


def last_error(relay: RelayReport) -> str:
    """The last error, unless the breaker gives it as its reason; shortened."""
    if relay.last_error == relay.reason:
        return ""
    text = relay.last_error
    return text if len(text) <= LONGEST_ERROR else f"{text[: LONGEST_ERROR - 1]}…"


def bar(count: int, most: int) -> str:
    if not count:
        return ""
    return "█" * max(1, round(BAR_WIDTH * count / most))


def _line(session: Session, phase: str, count: str, bar: str, remark: str) -> None:
    if not session.output.terminal:
        click.echo(f"{phase:16}{count}  {remark}".rstrip())
        return
    from rich.text import Text

    style = STYLES[phase]
    session.output.console.print(
        Text.assemble((f"{phase:16}", style), count, "  ", (f"{bar:{BAR_WIDTH}}", style), "  ", (remark, "dim")),
        soft_wrap=True,
    )


def phase_remarks(stats: Stats) -> dict[str, str]:
    ages = {
        "AVAILABLE": ("oldest available", stats.oldest_available),
        "DEAD": ("oldest", stats.oldest_dead),
        "COMPLETED": ("oldest", stats.oldest_completed),
    }
    remarks = {phase: f"{words} {format_duration(age)}" for phase, (words, age) in ages.items() if age is not None}
    if stats.first_lease_ends is not None:
        ends = stats.first_lease_ends
        words = f"ends in {format_duration(ends)}" if ends > timedelta(0) else f"ended {format_duration(-ends)} ago"
        remarks["IN_FLIGHT"] = f"first lease {words}"
    return remarks


def no_relay(stats: Stats) -> list[str]:
    """A warning if events are pending and no relay is alive."""
    pending = sum(count for phase, count in stats.phases.items() if phase.value in PENDING)
    if not pending or any(relay.alive for relay in stats.relays):
        return []
    if stats.relays:
        ago = format_duration(min(relay.seen for relay in stats.relays))
        return [f"no relay has sent a heartbeat for {ago}: pending events wait until one is running again"]
    return ["no relay is running: pending events wait until one is started (redbox relay --to URL)"]


def alarms(stats: Stats) -> list[str]:
    """Warnings about counts that should be 0."""
    overdue = "the lease has expired, and no relay has reaped it; is a relay running?"
    if stats.overdue > 1:
        overdue = "the leases have expired, and no relay has reaped them; is a relay running?"
    blocked = "stopped by a dead event at the head of the line; replay or drop it"
    if stats.blocked > 1:
        blocked = "stopped by dead events at the heads of their lines; replay or drop them"
    found = (
        (stats.overdue, "overdue claim", overdue),
        (stats.suspects, "suspect event", "claimed alone, since two leases in a row expired"),
        (stats.blocked, "blocked ordering key", blocked),
        (
            len(stats.unreadable),
            "unreadable value",
            f"{', '.join(map(printable, stats.unreadable))}; not written by redbox",
        ),
        (stats.lost, "lost event", f"incomplete, and never delivered: {_lost_ids(stats)}"),
    )
    return [f"{counted(count, noun)}: {words}" for count, noun, words in found if count]


def _lost_ids(stats: Stats) -> str:
    """The first ids, and the remedy."""
    more = ", ..." if stats.lost > len(stats.lost_ids) else ""
    named = ", ".join(printable(event_id) for event_id in stats.lost_ids)
    them = "it" if stats.lost == 1 else "them"
    return f"{named}{more}; `redbox show ID` shows the remains; put {them} again from the source or the archive"
