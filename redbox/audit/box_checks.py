"""The checks of a box that its counts, its relays and its settings allow: pure functions from them to findings."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final

from redbox.arguments import counted
from redbox.audit.findings import Finding, error, info, ok, warning
from redbox.box.reports import RelayReport, Stats
from redbox.durations import format_duration
from redbox.events import Phase
from redbox.settings import RETENTION

BACKLOG_AGE: Final = timedelta(minutes=5)  # of the oldest due event: more is worth a warning
SHOWN: Final = 5  # names in a sentence


def check_box(
    stats: Stats, blocked: Sequence[str] = (), paused: Sequence[str] = (), *, replica: bool = False
) -> Iterator[Finding]:
    """The findings about a box. `blocked` and `paused` are the first of the ordering keys that are. `replica`: it was
    read from one, which no relay can use."""
    yield ok("layout", f"the box has layout {stats.layout}, which this redbox understands")
    yield from _unreadable(stats)
    yield from _lost(stats)
    yield from _pauses(stats, paused)
    yield from _relays(stats, replica)
    yield from _claims(stats)
    yield from _keys(stats, blocked)
    yield from _events(stats)


def named(names: Sequence[str], total: int | None = None) -> str:
    """The first names, and how many more there are."""
    more = max(len(names), total or 0) - min(SHOWN, len(names))
    return ", ".join(map(repr, names[:SHOWN])) + (f" and {more:,} more" if more else "")


def _which(names: Sequence[str], total: int) -> str:
    return f": {named(names, total)}" if names else ""


def _unreadable(stats: Stats) -> Iterator[Finding]:
    settings = [name for name in stats.unreadable if name.startswith("the setting ")]
    if settings:
        names = [name.removeprefix("the setting ") for name in settings]
        meaning = "the default is used"
        if not {"max_rate", "max_in_flight"}.isdisjoint(names):
            meaning += ", so relays claim without that limit"
        if not set(RETENTION).isdisjoint(names):
            meaning += ", and nothing is swept until it is set again"
        yield error(
            "settings", f"{', '.join(settings)} cannot be read", meaning, f"`redbox configure {names[0]}=VALUE`"
        )
    others = [name for name in stats.unreadable if name not in settings]
    if others:
        yield warning(
            "settings", f"{', '.join(others[:SHOWN])} cannot be read", "it was not written by redbox, and is left out",
            "delete it, if no other program needs it",
        )  # fmt: skip


def _lost(stats: Stats) -> Iterator[Finding]:
    if stats.lost:
        yield error(
            "lost", f"{counted(stats.lost, 'lost event')}: {named(stats.lost_ids, stats.lost)}",
            "a claim found the id without a complete event; such events are not delivered", "`redbox doctor --repair`",
        )  # fmt: skip


def _pauses(stats: Stats, paused: Sequence[str]) -> Iterator[Finding]:
    if stats.paused:
        pause = stats.pause
        by = f" by {pause.who}: {pause.why}" if pause is not None and pause.who else ""
        ends = "it is resumed" if pause is None or pause.until is None else f"{pause.until:%Y-%m-%dT%H:%M:%SZ}"
        yield warning("pause", f"the box is paused{by}", f"no event is claimed until {ends}", "`redbox resume`")
    if stats.paused_keys:
        are, their = ("is", "its") if stats.paused_keys == 1 else ("are", "their")
        yield warning(
            "pause", f"{counted(stats.paused_keys, 'ordering key')} {are} paused{_which(paused, stats.paused_keys)}",
            f"{their} events wait until the pause ends, or the key is resumed", _resume(paused),
        )  # fmt: skip


def _resume(paused: Sequence[str]) -> str:
    """The command that resumes the first of the paused ordering keys."""
    if not paused or not paused[0].isprintable() or "`" in paused[0]:
        return "`redbox resume --key KEY`"
    return f"`{shlex.join(('redbox', 'resume', f'--key={paused[0]}'))}`"


def _relays(stats: Stats, replica: bool) -> Iterator[Finding]:
    alive = [relay for relay in stats.relays if relay.alive]
    due = stats.phases[Phase.AVAILABLE]
    later = stats.phases[Phase.SCHEDULED] + stats.phases[Phase.RETRY_SCHEDULED]
    if not alive and due + later:
        say = error if due else warning
        last = min((relay.seen for relay in stats.relays), default=None)
        since = "" if last is None else f"; the last heartbeat was {format_duration(last)} ago"
        pending = f"{counted(due + later, 'pending event')}, {due:,} of them due"
        remedy = "`redbox relay --to URL`, with the URL of the master" if replica else "`redbox relay --to URL`"
        yield say("relays", f"{pending}, and no relay is running{since}", "nothing is delivered", remedy)
    elif alive:
        yield ok("relays", f"{counted(len(alive), 'relay')} running")
    yield from _breakers(alive)
    versions = sorted({relay.version for relay in alive if relay.version})
    if len(versions) > 1:
        yield warning(
            "versions", f"the relays run different versions of redbox: {', '.join(versions)}",
            "an upgrade is not finished", "restart the relays of the older version",
        )  # fmt: skip


def _breakers(alive: Sequence[RelayReport]) -> Iterator[Finding]:
    for relay in alive:
        if relay.breaker != "closed":
            yield warning(
                "breaker", f"the breaker of relay {relay.name} is {relay.breaker}: {relay.reason or 'no reason given'}",
                f"its target {relay.target} is down or rejects everything; events wait, and keep their attempts, but "
                "if it rejects events for a reason of their own (HTTP 400, 422), each probe makes one DEAD",
                "repair the target; the relay tries it again by itself. `redbox pause` spares it until then",
            )  # fmt: skip


def _claims(stats: Stats) -> Iterator[Finding]:
    if stats.overdue:
        ended, lease = stats.first_lease_ends, "the lease" if stats.overdue == 1 else "the first lease"
        ago = "" if ended is None else f"; {lease} ended {format_duration(max(timedelta(0), -ended))} ago"
        events = "the event returns" if stats.overdue == 1 else "the events return"
        yield warning(
            "claims", f"{counted(stats.overdue, 'expired claim')}{ago}", f"{events} to PENDING as soon as a relay runs",
            "`redbox reap`",
        )  # fmt: skip
    if stats.suspects:
        yield warning(
            "suspects", f"{counted(stats.suspects, 'suspect event')}: two leases in a row expired",
            "the event may crash the relays that publish it; it is claimed alone",
            "`redbox why` says which, and what to do",
        )  # fmt: skip


def _keys(stats: Stats, blocked: Sequence[str]) -> Iterator[Finding]:
    if stats.blocked:
        by, head = ("a dead event", "it") if stats.blocked == 1 else ("dead events", "them")
        which = _which(blocked, stats.blocked)
        yield warning(
            "blocked", f"{counted(stats.blocked, 'ordering key')} blocked by {by}{which}",
            f"the events behind {head} wait (dead_head=block)",
            f"`redbox dead list --key KEY`, then replay or drop {head}",
        )  # fmt: skip


def check_bodies(ids: Sequence[str]) -> Iterator[Finding]:
    """The finding about DEAD events that a repair has marked, because their body is missing."""
    if ids:
        it, its = ("it", "its body") if len(ids) == 1 else ("them", "their bodies")
        yield warning(
            "bodies", f"{counted(len(ids), 'dead event')} without a body: {named(ids)}",
            f"{its} cannot be restored, so a replay is of no use",
            f"`redbox drop ID`, and put {it} again from the data of the application",
        )  # fmt: skip


def _events(stats: Stats) -> Iterator[Finding]:
    oldest = stats.oldest_available
    if oldest is not None and oldest > BACKLOG_AGE and not stats.paused:
        sentence = f"the oldest due event has been waiting for {format_duration(oldest)}"
        if stats.ramp_ends is not None:
            yield info(
                "backlog", sentence,
                f"the box was resumed gradually: relays claim without limit in {format_duration(stats.ramp_ends)}",
                "`redbox resume` ends the ramp now",
            )  # fmt: skip
        elif stats.limits_reached:
            name = stats.limits_reached[0]
            yield warning(
                "backlog", sentence, f"the limit {name}={getattr(stats.settings, name)} is reached",
                f"`redbox configure {name}=VALUE` raises it, if the target can take more",
            )  # fmt: skip
        else:
            yield warning(
                "backlog", sentence, "relays are too slow, or not running", "`redbox top`, or start more relays"
            )
    retrying = stats.phases[Phase.RETRY_SCHEDULED]
    if retrying:
        yield info("retries", f"{counted(retrying, 'event')} failed and will be retried", remedy="`redbox why ID`")
    dead = stats.phases[Phase.DEAD]
    if dead:
        yield info(
            "dead", counted(dead, "dead event"), "dead events are not tried again", "`redbox dead list --by-error`"
        )
