"""The conditions of a box that alerts are about: what its stats say about each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from redbox.arguments import counted
from redbox.box.reports import RelayReport, Stats
from redbox.durations import format_duration
from redbox.events import Phase

ALERT_AGE: Final = 300.0
#: A condition ends only when the value is well below its limit: so an alert is not repeated while it varies around it.
ROOM: Final = 0.9
RECOVERED_AGE: Final = 0.5
MOST_TARGETS: Final = 20
_PENDING: Final = (Phase.AVAILABLE, Phase.SCHEDULED, Phase.RETRY_SCHEDULED)


class Alert(NamedTuple):
    """An operational event: its type, a sentence, since when that is so, and the relay that it is about, if it is about
    one."""

    event_type: str
    text: str
    since: datetime
    relay: str = ""


class Condition(NamedTuple):
    """A condition as it was observed. `holds` is None if it can be neither confirmed nor ruled out; `begun` and `ended`
    are the alerts for the two changes."""

    name: str
    holds: bool | None
    begun: Alert
    ended: Alert


def observe(stats: Stats, alert_age: float, breakers: Breakers) -> Iterator[Condition]:
    """The conditions of a box. `alert_age` is the limit of the age of the oldest available event, in seconds."""
    yield _paused(stats)
    yield _full(stats)
    yield _old(stats, alert_age)
    yield from _breakers(stats, breakers)


def _paused(stats: Stats) -> Condition:
    pause, text = stats.pause, f"box {stats.box} is paused"
    if pause is not None:
        text += f" by {pause.who}" if pause.who else ""
        text += f": {pause.why}" if pause.why else ""
    since = stats.at if pause is None or pause.since is None else pause.since
    return Condition(
        "paused",
        stats.paused,
        Alert("redbox.box.paused", text, since),
        Alert("redbox.box.resumed", f"box {stats.box} is not paused any more", stats.at),
    )


def _full(stats: Stats) -> Condition:
    limit, pending = stats.settings.max_pending, sum(stats.phases[phase] for phase in _PENDING)
    holds = None
    if limit and pending >= limit:
        holds = True
    elif not limit or pending < ROOM * limit:
        holds = False
    events = counted(pending, "pending event")
    return Condition(
        "full",
        holds,
        Alert("redbox.box.full", f"box {stats.box} is full: it has {events}, and puts are refused", stats.at),
        Alert("redbox.box.has_room", f"box {stats.box} accepts events again: it has {events}", stats.at),
    )


def _old(stats: Stats, limit: float) -> Condition:
    oldest = stats.oldest_available or timedelta(0)
    age = oldest.total_seconds()
    holds = None
    if age > limit:
        holds = True
    elif age <= RECOVERED_AGE * limit:
        holds = False
    waits = f"the oldest available event of box {stats.box} has waited for {format_duration(round(age))}"
    return Condition(
        "old",
        holds,
        Alert("redbox.events.late", f"{waits}; the limit is {format_duration(limit)}", stats.at - oldest),
        Alert("redbox.events.on_time", f"box {stats.box} has no late event any more", stats.at),
    )


class Breakers:
    """Which open breakers say that their target is down.

    After an outage, one relay may publish everything that is available; the breakers of others stay open, since they
    have no event to probe with. So while one relay of a target has a closed breaker, an open one counts only if its
    relay failed again since the breaker of another one closed, or since both were first seen.
    """

    def __init__(self) -> None:
        self._were_open: dict[str, set[str]] = {}  # target → relays
        self._failed: dict[str, dict[str, int]] = {}  # target → relay → failed attempts that do not count

    def down(self, target: str, relays: list[RelayReport]) -> list[RelayReport]:
        """The relays of a target whose open breaker counts."""
        opened = [relay for relay in relays if relay.breaker_open]
        closed = {relay.name for relay in relays if not relay.breaker_open}
        answered = self._were_open.get(target, set()) & closed
        before = {} if answered else self._failed.get(target, {})
        self._were_open[target] = {relay.name for relay in opened}
        if not closed:
            self._failed.pop(target, None)
            return opened
        failed = self._failed[target] = {relay.name: before.get(relay.name, relay.failed) for relay in opened}
        return [relay for relay in opened if relay.failed > failed[relay.name]]

    def forget_others(self, targets: Iterable[str]) -> None:
        """Forgets targets that have no relay any more."""
        kept = set(targets)
        for known in (self._were_open, self._failed):
            for target in known.keys() - kept:
                known.pop(target)


def _breakers(stats: Stats, breakers: Breakers) -> Iterator[Condition]:
    """One condition for each target, however many relays serve it. A target without a living relay has none: nobody
    knows whether it is up."""
    targets: dict[str, list[RelayReport]] = {}
    for relay in stats.relays:
        if relay.alive and (relay.target in targets or len(targets) < MOST_TARGETS):
            targets.setdefault(relay.target, []).append(relay)
    breakers.forget_others(targets)
    for target, relays in sorted(targets.items()):
        down = breakers.down(target, relays)
        first = max(down or relays, key=lambda relay: relay.breaker_since or timedelta(0))
        whose = f"{len(down)} relays" if len(down) > 1 else f"relay {first.name}"
        yield Condition(
            f"breaker:{hashlib.sha256(target.encode()).hexdigest()[:16]}",
            bool(down),
            Alert(
                "redbox.breaker.opened",
                f"the breaker of {whose} to {target} is open: {first.reason}",
                stats.at - (first.breaker_since or timedelta(0)),
                first.name,
            ),
            Alert("redbox.breaker.closed", f"{target} acknowledges events of box {stats.box} again", stats.at),
        )
