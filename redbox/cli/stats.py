"""`redbox stats` and `redbox boxes`: counts by phase."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from redbox.arguments import counted
from redbox.cli.failures import FAILED
from redbox.cli.output import printable
from redbox.cli.session import Session, pass_session
from redbox.durations import format_duration
from redbox.errors import NotPermitted, StoreUnavailable

if TYPE_CHECKING:
    from redbox.box.reports import RelayReport, Stats

BAR_WIDTH: Final = 20
PENDING: Final = ("AVAILABLE", "SCHEDULED", "RETRY_SCHEDULED")
SILENT: Final = timedelta(seconds=15)  # three heartbeats


@click.command("stats")
@pass_session
def stats_command(session: Session, /) -> None:
    """Count the events of the box by phase, and show its relays.

    Every event is in one phase; an event behind another of its ordering key counts in its own phase too. Ages,
    lifetime totals and the relays of the box follow. A relay is silent if its last heartbeat is more than 15 s old: if
    it is down, its events return to PENDING when their leases end. With --json, ages are in seconds.

    \b
    Examples:
      redbox stats
      redbox --json stats | jq '.relays[] | select(.breaker != "closed") | .reason'
      redbox --box orders --json stats | jq .phases.DEAD
    """

    async def read() -> Stats:
        async with session.existing() as box:
            return await box.stats()

    stats = session.run(read())
    if session.output.as_json:
        session.output.json(_as_json(stats))
    else:
        _show(session, stats)


def _as_json(stats: Stats) -> dict[str, Any]:
    values = {name: getattr(stats, name) for name in stats.__struct_fields__}
    values["relays"] = [
        {**{name: getattr(relay, name) for name in relay.__struct_fields__}, "seen": relay.seen.total_seconds(),
         "silent": relay.seen > SILENT}
        for relay in stats.relays
    ]  # fmt: skip
    return {name: value.total_seconds() if isinstance(value, timedelta) else value for name, value in values.items()}


def _show(session: Session, stats: Stats) -> None:
    from redbox.cli import records

    output = session.output
    output.text(f"box {stats.box} on {session.where} at {records.iso(stats.at)}", "bold")
    if stats.paused:
        output.text("PAUSED: no event is claimed until the box is resumed", "bold red")
    counts = {phase.value: count for phase, count in stats.phases.items()}
    counts = {"AVAILABLE": counts.pop("AVAILABLE"), **counts}
    remarks = _remarks(stats)
    most, width = max(counts.values()), max(len(f"{count:,}") for count in counts.values())
    for phase, count in counts.items():
        _line(session, phase, f"{count:>{width},}", _bar(count, most), remarks.get(phase, ""))
    if stats.waiting:
        verb = "waits" if stats.waiting == 1 else "wait"
        output.text(f"of which {stats.waiting:,} {verb} behind another event of the same ordering key")
    if stats.next_due is not None:
        output.text(f"next due in {format_duration(stats.next_due)}")  # the first of SCHEDULED and RETRY_SCHEDULED
    for text in _no_relay(stats) + _alarms(stats):
        output.text(text, "red")
    if stats.totals:
        output.text("totals  " + ", ".join(f"{name} {count:,}" for name, count in sorted(stats.totals.items())))
    if stats.relays:
        output.text("")
        output.table(
            ("RELAY", "TARGET", "SEEN", "HOST", "IN FLIGHT", "PUBLISHED", "BREAKER"),
            [_relay_row(relay) for relay in stats.relays],
            right=("IN FLIGHT", "PUBLISHED"),
        )


def _relay_row(relay: RelayReport) -> tuple[str, ...]:
    ago = format_duration(relay.seen)
    return (
        relay.name,
        relay.target,
        f"silent for {ago}" if relay.seen > SILENT else f"{ago} ago",
        f"{relay.host} ({relay.pid})",
        f"{relay.in_flight:,}",
        f"{relay.published:,}",
        f"{relay.breaker}: {relay.reason}" if relay.reason else relay.breaker,
    )


def _bar(count: int, most: int) -> str:
    if not count:
        return ""
    return "█" * max(1, round(BAR_WIDTH * count / most))


def _line(session: Session, phase: str, count: str, bar: str, remark: str) -> None:
    if not session.output.terminal:
        click.echo(f"{phase:16}{count}  {remark}".rstrip())
        return
    from rich.text import Text

    from redbox.cli.output import STYLES

    style = STYLES[phase]
    session.output.console.print(
        Text.assemble((f"{phase:16}", style), count, "  ", (f"{bar:{BAR_WIDTH}}", style), "  ", (remark, "dim")),
        soft_wrap=True,
    )


def _remarks(stats: Stats) -> dict[str, str]:
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


def _no_relay(stats: Stats) -> list[str]:
    """A warning if events are pending and no relay is alive."""
    pending = sum(count for phase, count in stats.phases.items() if phase.value in PENDING)
    if not pending or any(relay.seen <= SILENT for relay in stats.relays):
        return []
    if stats.relays:
        ago = format_duration(min(relay.seen for relay in stats.relays))
        return [f"no relay has sent a heartbeat for {ago}: pending events wait until one is running again"]
    return ["no relay is running: pending events wait until one is started (redbox relay --to URL)"]


def _alarms(stats: Stats) -> list[str]:
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


COLUMNS: Final = ("AVAILABLE", "SCHEDULED", "RETRY_SCHEDULED", "IN_FLIGHT", "DEAD", "COMPLETED", "OF WHICH WAITING")


@click.command("boxes")
@pass_session
@click.pass_context
def boxes_command(ctx: click.Context, session: Session, /) -> None:
    """List the boxes of the store with their counts.

    The exit code is 1 if a box cannot be read.

    \b
    Examples:
      redbox boxes
      redbox --json boxes | jq -r 'select(.phases.DEAD > 0) | .box'
    """

    async def read() -> list[tuple[str, Stats | str]]:
        session.require_directory()
        found: list[tuple[str, Stats | str]] = []
        async with session.open() as any_box:  # keeps an embedded server running
            for name in await any_box.names():
                async with session.open(name) as box:
                    found.append((name, await _stats_or_reason(box)))
        return found

    found = session.run(read())
    if session.output.as_json:
        for name, stats in found:
            session.output.json({"box": name, "error": stats} if isinstance(stats, str) else _as_json(stats))
    elif not found:
        session.output.note(f"there are no boxes on {session.where} yet; `redbox put` creates one")
    else:
        session.output.table(("BOX", *COLUMNS, "REMARK"), [_row(name, stats) for name, stats in found], right=COLUMNS)
    ctx.exit(FAILED if any(isinstance(stats, str) for _, stats in found) else 0)


async def _stats_or_reason(box: Any) -> Stats | str:
    """The stats of the box, or the reason why it cannot be read; the other boxes are still listed."""
    from redbox.errors import StoreError

    try:
        stats: Stats = await box.stats()
    except NotPermitted as error:
        return str(error)
    except StoreUnavailable:
        raise
    except StoreError as error:
        return str(error)
    return stats


def _row(name: str, stats: Stats | str) -> tuple[str, ...]:
    if isinstance(stats, str):
        return (name, *("?" for _ in COLUMNS), stats)
    counts = {**{phase.value: count for phase, count in stats.phases.items()}, "OF WHICH WAITING": stats.waiting}
    return (name, *(f"{counts[column]:,}" for column in COLUMNS), "paused" if stats.paused else "")
