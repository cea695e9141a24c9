"""What keeps relays from claiming any due event of a box, or of an ordering key."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, Final

import msgspec

from redbox.arguments import counted
from redbox.box.reports import Pause, RelayReport, Stats
from redbox.box.why.explanation import Cause, Situation, Step
from redbox.box.why.snapshot import Snapshot
from redbox.box.why.words import LONGEST_TEXT, are, because, quoted, sentence
from redbox.durations import format_duration
from redbox.events import Phase
from redbox.rates import double

START_RELAY: Final = Step("start a relay, with the URL of the target", ("relay", "--to", "URL"))
START_ANOTHER: Final = Step("start another relay, with the URL of the target", ("relay", "--to", "URL"))
#: A target in a heartbeat that can be given to a relay. Publishers leave out credentials, and shorten tokens with "…".
_KNOWN_TARGET: Final = re.compile(r"[a-z][a-z0-9+.-]*://(?!.*\[redacted\])[!-~]+")
#: HTTP statuses of wrong or missing credentials.
_REFUSED: Final = re.compile(r"\b40[13]\b")
#: HTTP statuses that reject the event; 401, 403, 404, 405, 408 and 429 blame the target.
_REJECTED: Final = re.compile(r"\bHTTP 4(?!0[13458]|29)[0-9]{2}\b")
#: HTTP statuses of a target that answers, and may be overloaded.
_OVERLOADED: Final = re.compile(r"\bHTTP (?:429|5[0-9]{2})\b")
_STATUS: Final = re.compile(r"\bHTTP [0-9]{3}\b")
#: As in redbox/relay/outcomes/breaker.py.
LONGEST_PAUSE: Final = "30 s"
MOST_PROBED, MOST_PROBED_AGAIN = 512, 64
HOLD_BACK: Final = Step("spare a target that is overloaded, until you resume with --ramp 5m", ("pause",))
SPARE_EVENTS: Final = Step("keep events from dying until the target is repaired", ("pause",))
#: Relays claim events all the same, at a lower rate.
SLOWED: Final = (Situation.RAMPING, Situation.LIMIT_REACHED)
#: The 5 s between two heartbeats, and the second that one may take.
LATE_BEAT: Final = timedelta(seconds=6)
MISSED_BEAT: Final = timedelta(seconds=8)
SEE_RELAYS: Final = Step("see each relay and its breaker", ("stats",))


def find_obstacle(snapshot: Snapshot, ordering_key: str | None = None) -> Cause | None:
    """The first obstacle, in the order in which removing it helps: what an operator decided, relays, the target."""
    if snapshot.stats.paused:
        return _paused(snapshot)
    if ordering_key is not None and ordering_key in snapshot.paused_keys:
        return _key_paused(snapshot, ordering_key)
    alive = snapshot.alive
    if not alive:
        return Cause(Situation.NO_RELAY, (no_relay_sentence(snapshot),), (start_relay(snapshot),))
    if all(relay.all_hang for relay in alive):
        return _all_hang(alive)
    if all(relay.breaker_open for relay in alive):
        return _breakers_open(alive)
    if snapshot.stats.ramp_ends is not None:
        return _ramping(snapshot.stats.ramp_ends)
    if snapshot.stats.limits_reached:
        return _limit_reached(snapshot.stats)
    return None


def start_relay(snapshot: Snapshot, step: Step = START_RELAY) -> Step:
    """The step with the target of the relay that was seen last, if its heartbeat has all of it."""
    target = snapshot.stats.relays[0].target if snapshot.stats.relays else ""
    if not _KNOWN_TARGET.fullmatch(target) or "@" in target or "?" in target or len(target) > LONGEST_TEXT:
        return step
    purpose = f"{step.purpose.partition(',')[0]} with the last known target (add credentials, if needed)"
    return msgspec.structs.replace(step, purpose=purpose, arguments=(*step.arguments[:-1], target))


def no_relay_sentence(snapshot: Snapshot) -> str:
    """Which relay was seen last, and when."""
    stats = snapshot.stats
    held = stats.phases[Phase.IN_FLIGHT] - stats.overdue
    if not stats.relays and held > 0:
        holds = f"but {counted(held, 'event')} {'is' if held == 1 else 'are'} claimed"
        return f"No relay sends a heartbeat, {holds}: a relay has just died, or runs without heartbeats."
    if not stats.relays:
        return "No relay is running: none is registered. A relay that was stopped gracefully is not listed."
    last = min(stats.relays, key=lambda relay: relay.seen)
    host = quoted(last.host) or "an unknown host"
    return (
        f"No relay is alive: relay {quoted(last.name)} on {host} has been silent for {format_duration(last.seen)}, and "
        "has probably died; a relay that stops in order leaves no heartbeat."
    )


def alive_words(alive: list[RelayReport]) -> str:
    """`2 relays are alive`, with the age of the last heartbeat if that is late."""
    words, seen = f"{are(len(alive), 'relay')} alive", min((relay.seen for relay in alive), default=timedelta(0))
    if seen <= LATE_BEAT:
        return words
    died = f": {'it' if len(alive) == 1 else 'they'} may have died" if seen > MISSED_BEAT else ""
    return f"{words} (last heartbeat {format_duration(seen)} ago{died})"


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


def _all_hang(alive: list[RelayReport]) -> Cause:
    """An open breaker of such a relay does not close by itself: no call is left to try the target."""
    first, one = alive[0], len(alive) == 1
    whose = f"{_places(first)}, the only one alive, {_taken(first)}"
    if not one:
        whose = f"All places of all {len(alive):,} relays are taken by calls that hang"
    target = f"The target is {quoted(first.target) or 'unknown'}."
    return Cause(Situation.STALLED, (f"{whose}. {_restart(alive)}", target), (SEE_RELAYS,))


def hanging_sentence(alive: list[RelayReport]) -> str | None:
    """The relays beside others whose calls all hang, by the first of them."""
    hang = [relay for relay in alive if relay.all_hang]
    if not hang or len(hang) == len(alive):
        return None
    places = _places(hang[0])
    more = f" (and those of {counted(len(hang) - 1, 'other relay')})" if len(hang) > 1 else ""
    return f"{places}{more} {_taken(hang[0])}. {_restart(hang)}"


def _places(relay: RelayReport) -> str:
    which = {1: "The only place", 2: "Both places"}.get(relay.calls, f"All {relay.calls:,} places")
    return f"{which} of relay {quoted(relay.name)}"


def _taken(relay: RelayReport) -> str:
    return "is taken by a call that hangs" if relay.calls == 1 else "are taken by calls that hang"


def _restart(relays: list[RelayReport]) -> str:
    it, claims = ("it", "it claims") if len(relays) == 1 else ("them", "they claim")
    return f"Restart {it}: {claims} nothing before a call ends."


def open_breaker_sentence(snapshot: Snapshot) -> str | None:
    """The open breakers beside another cause, by the first of them. A paused box is not probed."""
    alive = snapshot.alive
    opened = [relay for relay in alive if relay.breaker_open and not relay.all_hang]
    if not opened:
        return None
    first = opened[0]
    since = "" if first.breaker_since is None else f" for {format_duration(first.breaker_since)}"
    reason = sentence(quoted(first.reason) or "the target does not acknowledge events")
    more = f" (and {counted(len(opened) - 1, 'other')})" if len(opened) > 1 else ""
    probe = "" if snapshot.stats.paused else _next_probe(opened)
    return f"The breaker of relay {quoted(first.name)}{more} has been open{since}: {reason}{probe}"


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
        f"{LONGEST_PAUSE} apart: 8 events, and up to {MOST_PROBED_AGAIN} if the target answers with an "
        f"error ({MOST_PROBED} if it rejects all of them). When it acknowledges one, "
        f"relays publish the others.{_next_probe(alive)}"
    )
    reasons = [_present_reason(relay) for relay in alive]
    refused = any(_REFUSED.search(present) for present in reasons)
    repair = "Repair the target; the breaker then closes by itself."
    if refused:
        repair = "Repair the target: check its credentials. The breaker then closes by itself."
    sentences = [f"The {whose} been open{since}: {reason}", repair, after]
    if reasons[0] != latest.reason:
        sentences.insert(1, sentence(f"The latest attempt failed with: {quoted(reasons[0])}"))
    rejected = any(_REJECTED.search(present) for present in reasons)
    if rejected:
        sentences.append("While the target rejects events for a reason of their own, each failed try makes one DEAD.")
    steps = [Step("see whether the target is repaired, by its breaker", ("stats",))]
    if rejected:
        steps.insert(0, SPARE_EVENTS)
    elif any(_OVERLOADED.search(present) for present in reasons):
        steps.append(HOLD_BACK)
    return Cause(Situation.BREAKER_OPEN, tuple(sentences), tuple(steps))


def _present_reason(relay: RelayReport) -> str:
    """Why probes fail now. While a breaker is open, the target may begin to fail for another reason."""
    error = relay.last_error
    if not error or error in relay.reason or _status(error) == _status(relay.reason):
        return relay.reason
    return error


def _status(text: str) -> str:
    found = _STATUS.search(text)
    return found[0] if found else ""


def _next_probe(relays: list[RelayReport]) -> str:
    """` The next try is due in 12 s.`; empty if no relay says when."""
    due = min((relay.next_probe for relay in relays if relay.next_probe), default=None)
    return "" if due is None else f" The next try is due in {format_duration(due)}."


def _ramping(ramp_ends: timedelta) -> Cause:
    text = f"The box was resumed with a ramp: for another {format_duration(ramp_ends)}, relays claim at a reduced rate."
    return Cause(Situation.RAMPING, (text,), (Step("end the ramp now", ("resume",)),))


def _limit_reached(stats: Stats) -> Cause:
    """The limits of the box that hold back due events. That of the claims comes last: it may last until leases end."""
    sentences, steps = [], []
    settings = stats.settings
    if "max_rate" in stats.limits_reached and settings.max_rate is not None:
        sentences.append(f"The limit max_rate is reached: all relays together claim at most {settings.max_rate}.")
        steps.append(Step("raise that limit", ("configure", f"max_rate={double(settings.max_rate)}")))
    if "max_in_flight" in stats.limits_reached and settings.max_in_flight is not None:
        held, most = stats.phases[Phase.IN_FLIGHT] - stats.overdue, settings.max_in_flight
        claimed = f"{counted(held, 'event')} {'is' if held == 1 else 'are'} claimed"
        text = f"The limit max_in_flight is reached: {claimed}, and at most {most:,} may be at once."
        if stats.first_lease_ends is not None and stats.first_lease_ends > timedelta(0):
            ends = format_duration(stats.first_lease_ends)
            text += f" A place is free when one of them is settled, or its lease ends; the first ends in {ends}."
        sentences.append(text)
        steps.append(Step("raise that limit", ("configure", f"max_in_flight={2 * most}")))
    return Cause(Situation.LIMIT_REACHED, tuple(sentences), tuple(steps))


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
        "hanging": relay.hanging,
        "published": relay.published,
        "failed": relay.failed,
        "failures_in_row": relay.failures_in_row,
        "last_error": relay.last_error,
        "rate": relay.rate,
    }
