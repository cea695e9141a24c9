"""A box as text: counts by phase, rates, alarms and relays."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import click

from redbox.arguments import counted
from redbox.cli.printing import records, relay_view
from redbox.cli.printing.output import STYLES, printable
from redbox.cli.session import Session
from redbox.durations import format_duration

if TYPE_CHECKING:
    from redbox.box.desk.rates import Rates
    from redbox.box.reports import Pause, PausedKey, Stats

BAR_WIDTH: Final = 20
PENDING: Final = ("AVAILABLE", "SCHEDULED", "RETRY_SCHEDULED")


def show(session: Session, stats: Stats, rates: Rates, keys: Sequence[PausedKey] = ()) -> None:
    """Prints the box; `keys` are its first paused ordering keys."""
    output = session.output
    output.paragraph(f"box {stats.box} on {session.where} at {records.iso(stats.at)}", "bold")
    for text in pauses(stats, keys):
        output.paragraph(text, "bold red")
    if text := limits_in_words(stats):
        output.paragraph(text, "yellow" if stats.limits_reached else "")
    counts = {phase.value: count for phase, count in stats.phases.items()}
    counts = {"AVAILABLE": counts.pop("AVAILABLE"), **counts}
    remarks = phase_remarks(stats)
    most, width = max(counts.values()), max(len(f"{count:,}") for count in counts.values())
    for phase, count in counts.items():
        _line(session, phase, f"{count:>{width},}", bar(count, most), remarks.get(phase, ""))
    if stats.waiting:
        verb = "waits" if stats.waiting == 1 else "wait"
        text = f"of which {stats.waiting:,} {verb} behind another event of the same ordering key"
        text += ", or because the key is paused" if stats.paused_keys else ""
        if stats.oldest_waiting is not None and stats.oldest_waiting > timedelta(0):
            text += f"; oldest {format_duration(stats.oldest_waiting)}"
        output.paragraph(text)
    if stats.next_due is not None:
        output.text(f"next due in {format_duration(stats.next_due)}")  # the first of SCHEDULED and RETRY_SCHEDULED
    if text := rates_in_words(rates):
        output.paragraph(text)
    for text in no_relay(stats) + alarms(stats):
        output.paragraph(text, "red")
    if stats.totals:
        output.paragraph("totals  " + ", ".join(f"{name} {count:,}" for name, count in sorted(stats.totals.items())))
    if stats.relays:
        output.text("")
        columns = output.console.width if output.terminal else None
        relays = relay_view.view_relays(stats.relays, columns, paused=stats.paused)
        for line, style in relays.table:
            output.text(line, style)
        for text in relays.texts:
            output.paragraph(text)


def pauses(stats: Stats, keys: Sequence[PausedKey] = ()) -> list[str]:
    """The pause of the box with who, why and until when; paused keys, of which `keys` are named; the ramp."""
    found = []
    if stats.paused:
        words = "until the box is resumed" if stats.pause is None else _pause_words(stats.pause, stats.at, "the box")
        found.append(f"PAUSED: no event is claimed {words}")
    found += [
        f"PAUSED KEY {printable(key.key)!r}: not claimed {_pause_words(key, stats.at, 'it')}"
        for key in keys[: stats.paused_keys]
    ]
    more = stats.paused_keys - len(keys)
    if more > 0:
        another = "more " if keys else ""
        found.append(f"{counted(more, f'{another}paused ordering key')}: `redbox resume --key KEY` resumes one")
    if stats.ramp_ends is not None:
        found.append(f"RAMP: the rate of claims is limited for {format_duration(stats.ramp_ends)} more")
    return found


def limits_in_words(stats: Stats) -> str:
    """`limits  max_rate 50/s (reached), max_in_flight 5 (4 now)`; empty without limits."""
    settings, found = stats.settings, []
    if settings.max_rate is not None:
        burst = "" if settings.max_burst is None else f" with bursts of {settings.max_burst:,}"
        found.append(f"max_rate {settings.max_rate}{burst}{' (reached)' if 'max_rate' in stats.limits_reached else ''}")
    if settings.max_in_flight is not None:
        held = next(count for phase, count in stats.phases.items() if phase.value == "IN_FLIGHT") - stats.overdue
        now = f"reached: {held:,} now" if "max_in_flight" in stats.limits_reached else f"{held:,} now"
        found.append(f"max_in_flight {settings.max_in_flight:,} ({now})")
    return f"limits  {', '.join(found)}" if found else ""


def _pause_words(pause: Pause | PausedKey, at: datetime, what: str) -> str:
    """`for 8 min more (by ada, 2 min ago: deploy)`."""
    text = f"until {what} is resumed" if pause.until is None else f"for {format_duration(pause.until - at)} more"
    if not pause.who:
        return text
    since = "" if pause.since is None else f", {format_duration(at - pause.since)} ago"
    return f"{text} (by {printable(pause.who)}{since}{': ' if pause.why else ''}{printable(pause.why)})"


def rates_in_words(rates: Rates) -> str:
    """`rates   put 3.1/s, published 3.0/s`; empty if none is known."""
    known = {name: getattr(rates, name) for name in ("put", "published", "failed")}
    words = ", ".join(f"{name} {relay_view.format_rate(value)}" for name, value in known.items() if value is not None)
    if not words:
        return ""
    source = "reported by the relays" if rates.seconds is None else f"over {format_duration(rates.seconds)}"
    return f"rates   {words} ({source})"


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
    return ["no relay is running: pending events wait until one is started (`redbox relay --to URL`)"]


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
    """The first ids, and the remedies in their order."""
    more = ", ..." if stats.lost > len(stats.lost_ids) else ""
    named = ", ".join(printable(event_id) for event_id in stats.lost_ids)
    repair = "`redbox doctor --repair` restores what can be restored"
    return f"{named}{more}; {repair}; put the rest again from the source or the archive"
