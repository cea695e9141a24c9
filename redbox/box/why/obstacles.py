"""What keeps relays from claiming any due event of a box, or of an ordering key."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, Final

from redbox.arguments import counted
from redbox.box.reports import Pause, RelayReport
from redbox.box.why.explanation import Cause, Situation, Step
from redbox.box.why.snapshot import Snapshot
from redbox.box.why.words import because, quoted, sentence
from redbox.durations import format_duration
from redbox.events import Phase

START_RELAY: Final = Step("start a relay, with the URL of the target", ("relay", "--to", "URL"))
#: HTTP statuses of wrong or missing credentials.
_REFUSED: Final = re.compile(r"\b40[13]\b")
#: HTTP statuses that reject the event; 401, 403, 404, 405, 408 and 429 blame the target.
_REJECTED: Final = re.compile(r"\bHTTP 4(?!0[13458]|29)[0-9]{2}\b")
#: HTTP statuses of a target that answers, and may be overloaded.
_OVERLOADED: Final = re.compile(r"\bHTTP (?:429|5[0-9]{2})\b")
#: As in redbox/relay/breaker.py.
LONGEST_PAUSE: Final = "30 s"
MOST_PROBED: Final = 512
HOLD_BACK: Final = Step("spare a target that is overloaded, until you resume with --ramp 5m", ("pause",))
SEE_RELAYS: Final = Step("see each relay and its breaker", ("stats",))


def find_obstacle(snapshot: Snapshot, ordering_key: str | None = None) -> Cause | None:
    """The first obstacle, in the order in which removing it helps: what an operator decided, relays, the target."""
    if snapshot.stats.paused:
        return _paused(snapshot)
    if ordering_key is not None and ordering_key in snapshot.paused_keys:
        return _key_paused(snapshot, ordering_key)
    alive = snapshot.alive
    if not alive:
        return Cause(Situation.NO_RELAY, (no_relay_sentence(snapshot),), (START_RELAY,))
    if all(relay.breaker_open for relay in alive):
        return _breakers_open(alive)
    if snapshot.stats.ramp_ends is not None:
        return _ramping(snapshot.stats.ramp_ends)
    return None


def no_relay_sentence(snapshot: Snapshot) -> str:
    """Which relay was seen last, and when."""
    stats = snapshot.stats
    held = stats.phases[Phase.IN_FLIGHT] - stats.overdue
    if not stats.relays and held > 0:
        holds = f"but {counted(held, 'event')} {'is' if held == 1 else 'are'} claimed"
        return f"No relay sends a heartbeat, {holds}: a relay has just died, or runs without heartbeats."
    if not stats.relays:
        return "No relay is running: none is registered; a relay that stops in order leaves no heartbeat."
    last = min(stats.relays, key=lambda relay: relay.seen)
    return (
        f"No relay is alive: the last heartbeat came {format_duration(last.seen)} ago, from relay {quoted(last.name)} "
        f"on {quoted(last.host) or 'an unknown host'}."
    )


def _paused(snapshot: Snapshot) -> Cause:
    text = f"The box {_pause_words(snapshot, snapshot.pause or Pause('', '', None, None), 'no event is claimed')}."
    return Cause(Situation.PAUSED, (text,), (Step("let relays claim again", ("resume",)),))


def _key_paused(snapshot: Snapshot, key: str) -> Cause:
    words = _pause_words(snapshot, snapshot.paused_keys[key], "none of its events is claimed")
    text = f"The ordering key {quoted(key)!r} {words}."
    return Cause(
        Situation.KEY_PAUSED, (text,), (Step("let relays claim its events again", ("resume", f"--key={key}")),)
    )


def _pause_words(snapshot: Snapshot, pause: Pause, effect: str) -> str:
    """`was paused 3 min ago by ada (the provider is down): no event is claimed until it is resumed`."""
    clock = snapshot.clock
    since = f"was paused {clock.ago(pause.since)}" if pause.since is not None else "is paused,"
    until = "until it is resumed" if pause.until is None else f"until the pause ends {clock.ahead(pause.until)}"
    return f"{since} {because(pause.who, pause.why)}: {effect} {until}"


def open_breaker_sentence(alive: list[RelayReport]) -> str | None:
    """The open breakers beside relays that publish, by the first of them."""
    opened = [relay for relay in alive if relay.breaker_open]
    if not opened:
        return None
    first = opened[0]
    since = "" if first.breaker_since is None else f" for {format_duration(first.breaker_since)}"
    reason = sentence(quoted(first.reason) or "the target does not acknowledge events")
    more = f" (and {counted(len(opened) - 1, 'other')})" if len(opened) > 1 else ""
    whose = f"the breaker of relay {quoted(first.name)}{more}"
    return f"Besides, {whose} has been open{since}: {reason}{_next_probe(opened)}"


def _breakers_open(alive: list[RelayReport]) -> Cause:
    latest = alive[0]
    known = [relay.breaker_since for relay in alive if relay.breaker_since is not None]
    since = f" for {format_duration(max(known))}" if known else ""
    reason = sentence(quoted(latest.reason) or "the target does not acknowledge events")
    whose = f"breakers of all {len(alive):,} relays have"
    if len(alive) == 1:
        whose = f"breaker of relay {quoted(latest.name)}, the only one alive, has"
    after = (
        f"The target is {quoted(latest.target) or 'unknown'}. Each relay tries a sample of the events at most "
        f"{LONGEST_PAUSE} apart: 8 events, and up to {MOST_PROBED} if the target answers. When it acknowledges one, "
        f"relays publish the others.{_next_probe(alive)}"
    )
    refused = any(_REFUSED.search(relay.reason) for relay in alive)
    repair = "Repair the target; the breaker then closes by itself."
    if refused:
        repair = "Repair the target: check its credentials. The breaker then closes by itself."
    sentences = [f"The {whose} been open{since}: {reason}", after, repair]
    if any(_REJECTED.search(relay.reason) for relay in alive):
        sentences.append("While the target rejects events for a reason of their own, each failed try makes one DEAD.")
    steps = [Step("see whether the target is repaired, by its breaker", ("stats",))]
    if any(_OVERLOADED.search(relay.reason) for relay in alive):
        steps.append(HOLD_BACK)
    return Cause(Situation.BREAKER_OPEN, tuple(sentences), tuple(steps))


def _next_probe(relays: list[RelayReport]) -> str:
    """` The next try is due in 12 s.`; empty if no relay says when."""
    due = min((relay.next_probe for relay in relays if relay.next_probe), default=None)
    return "" if due is None else f" The next try is due in {format_duration(due)}."


def _ramping(ramp_ends: timedelta) -> Cause:
    text = f"The box was resumed with a ramp: for another {format_duration(ramp_ends)}, relays claim at a reduced rate."
    return Cause(Situation.RAMPING, (text,), (Step("end the ramp now", ("resume",)),))


def relay_facts(relay: RelayReport) -> dict[str, Any]:
    """A relay as evidence."""
    return {
        "name": relay.name,
        "seen_seconds_ago": relay.seen.total_seconds(),
        "alive": relay.alive,
        "target": relay.target,
        "breaker": relay.breaker,
        "reason": relay.reason,
        "next_probe_seconds": None if relay.next_probe is None else relay.next_probe.total_seconds(),
        "in_flight": relay.in_flight,
        "published": relay.published,
        "failed": relay.failed,
        "failures_in_row": relay.failures_in_row,
        "last_error": relay.last_error,
        "rate": relay.rate,
    }
