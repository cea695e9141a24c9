"""Explains a box: the one most likely cause that its events do not flow, or the evidence that they do."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from redbox.arguments import counted
from redbox.box.reports import SILENT
from redbox.box.why.event import DOCTOR, MISSED_BEAT, REAP, REPAIR, SUSPECT_FROM, cause_of
from redbox.box.why.explanation import Cause, Explanation, Situation, Step, by_id
from redbox.box.why.obstacles import (
    SEE_RELAYS,
    START_RELAY,
    find_obstacle,
    no_relay_sentence,
    open_breaker_sentence,
    relay_facts,
)
from redbox.box.why.snapshot import Snapshot
from redbox.box.why.words import are, because, many, quoted, sentence, wait
from redbox.durations import format_duration
from redbox.events import Phase
from redbox.store.replies import Sighting

#: An event that is due for longer than this is late: relays that can keep up claim it within a second.
LATE: Final = timedelta(seconds=5)
SEE_CLAIMED: Final = Step("see which events are in flight, and for how long", ("list", "--state", "claimed"))
SEE_BOXES: Final = Step("see what the other boxes hold", ("boxes",))
#: Failures in a row, without a success, after which a relay counts as failing.
FAILURES: Final = 3


def explain_box(snapshot: Snapshot) -> Explanation:
    """The first cause that applies, in the order in which removing it helps; then what is wrong beside it."""
    found: Cause | None = None
    for find in CAUSES:
        found = find(snapshot)
        if found is not None:
            break
    cause = found or _flowing(snapshot)
    beside, steps = _beside(snapshot, cause)
    return Explanation(
        subject=f"box {snapshot.box}",
        situation=cause.situation,
        at=snapshot.clock.now,
        sentences=(*cause.sentences, *beside),
        next_steps=(*cause.steps, *steps),
        evidence=_facts(snapshot),
    )


# --- counts ------------------------------------------------------------------------------------------------------


def _claimable(snapshot: Snapshot) -> int:
    """Due events that are not behind the head of their line."""
    return snapshot.stats.phases[Phase.AVAILABLE] - snapshot.stats.waiting_due


def _pending(snapshot: Snapshot) -> int:
    phases = snapshot.stats.phases
    return sum(phases[phase] for phase in (Phase.AVAILABLE, Phase.SCHEDULED, Phase.RETRY_SCHEDULED))


# --- the causes, in their order ----------------------------------------------------------------------------------


def _store_refuses(snapshot: Snapshot) -> Cause | None:
    """A server that refuses writes; and that no relay is alive, which a repair of the server does not change."""
    cause = _server_refuses(snapshot)
    if cause is None or snapshot.alive:
        return cause
    return Cause(cause.situation, (*cause.sentences, no_relay_sentence(snapshot)), (*cause.steps, START_RELAY))


def _server_refuses(snapshot: Snapshot) -> Cause | None:
    """Nothing can be put; with a full disk or on a replica, nothing can be claimed or settled either."""
    server = snapshot.server
    if server is None:
        return None
    if server.full:
        text = f"The server is full: it uses {server.memory}, with the policy {server.setting('maxmemory-policy')}."
        after = "Puts and replays that need more than is left are refused."
        if snapshot.alive:
            after += " Relays go on: they claim and settle the events that are stored."
        delivered = snapshot.stats.phases[Phase.COMPLETED]
        room = (
            f"This box holds {counted(delivered, 'delivered event')}, which a sweep can remove; a plain sweep removes "
            "only those past their retention."
        )
        if not delivered:
            room = "This box holds no delivered event, so a sweep makes no room."
        more = "Otherwise raise maxmemory, or look for other boxes and other data on the server."
        sweep = Step(
            "see how many delivered events a sweep would remove", ("sweep", "--keep-published", "0s", "--dry-run")
        )
        steps = (sweep, SEE_BOXES) if delivered else (SEE_BOXES,)
        return Cause(Situation.STORE_REFUSES_WRITES, (text, after, room, more), steps)
    if server.refusal:
        text = f"The server refuses all writes: {server.refusal}."
        after = "No event can be put, claimed or settled before that is repaired."
        if server.is_replica:
            after = "No event can be put, claimed or settled through it: connect to its master."
        return Cause(Situation.STORE_REFUSES_WRITES, (text, after), (DOCTOR,))
    return None


def _paused(snapshot: Snapshot) -> Cause | None:
    if not snapshot.stats.paused:
        return None
    cause = find_obstacle(snapshot)
    assert cause is not None
    pending = _pending(snapshot)
    after = f"{wait(pending)} until then." if pending else "No event waits at the moment."
    return Cause(Situation.PAUSED, (*cause.sentences, after), cause.steps)


def _due_and_obstructed(snapshot: Snapshot) -> Cause | None:
    """No relay, or no relay with a closed breaker, while events are due or their leases have ended."""
    stats = snapshot.stats
    due = stats.phases[Phase.AVAILABLE]
    cause = find_obstacle(snapshot)
    if cause is None or cause.situation is Situation.RAMPING or not (due or stats.overdue):
        return None
    age = f", the oldest for {format_duration(stats.oldest_available)}" if stats.oldest_available else ""
    parts = [f"{are(due)} due{age}"] if due else []
    if stats.overdue:
        parts.append(f"{many(stats.overdue, 'claim', 'has', 'have')} expired{_first_holder(snapshot)}")
    steps = (*cause.steps, REAP) if stats.overdue else cause.steps
    return Cause(cause.situation, (*cause.sentences, f"Meanwhile {', and '.join(parts)}."), steps)


def _first_holder(snapshot: Snapshot) -> str:
    """`, the first one held by relay relay-1`: who held the claim whose lease ended first."""
    claimed = [each for each in snapshot.located.sightings if "claimed" in each.scores]
    first = min(claimed, key=lambda each: each.scores["claimed"], default=None)
    if first is None or first.record is None or not first.record.claimed_by:
        return ""
    which = "held by" if snapshot.stats.overdue == 1 else "the first one held by"
    return f", {which} relay {quoted(first.record.claimed_by)}"


def _crash_loop(snapshot: Snapshot) -> Cause | None:
    """No relay is alive, and an event has probably crashed them: a relay that is started would die as well."""
    crashing = None if snapshot.alive else _crashing(snapshot)
    if crashing is None:
        return None
    after = _due_and_obstructed(snapshot) or Cause(Situation.NO_RELAY, (no_relay_sentence(snapshot),), (START_RELAY,))
    return Cause(Situation.SUSPECT, (*crashing.sentences, *after.sentences), (*crashing.steps, *after.steps))


def _retrying_behind_breakers(snapshot: Snapshot) -> Cause | None:
    """All breakers are open, and the events that failed wait for their retry."""
    cause = find_obstacle(snapshot)
    if cause is None or cause.situation is not Situation.BREAKER_OPEN or not _pending(snapshot):
        return None
    return Cause(cause.situation, (*cause.sentences, f"{wait(_pending(snapshot))} for the target."), cause.steps)


def _leases_expired(snapshot: Snapshot) -> Cause | None:
    """Relays are alive, and nevertheless nobody reaps."""
    stats = snapshot.stats
    if not stats.overdue or stats.first_lease_ends is None or -stats.first_lease_ends <= SILENT or _claimable(snapshot):
        return None
    ago = format_duration(-stats.first_lease_ends)
    text = (
        f"{many(stats.overdue, 'claim', 'has', 'have')} expired{_first_holder(snapshot)}, {ago} ago, and no relay has "
        "reaped: relays are alive, but run without a reaper."
    )
    return Cause(Situation.LEASE_EXPIRED, (text,), (REAP,))


def _blocked(snapshot: Snapshot) -> Cause | None:
    """No event can be claimed, because all due events are behind the heads of their lines."""
    stats = snapshot.stats
    if _claimable(snapshot) or not stats.waiting_due:
        return None
    due = stats.waiting_due
    behind = f"{wait(due, 'due event')} behind the {'head of its line' if due == 1 else 'heads of their lines'}"
    head = _blocking_head(snapshot)
    if head is not None:
        lines = f"{are(stats.blocked, 'ordering key')} blocked by a DEAD event"
        cause = cause_of(snapshot, head, f"Event {quoted(head.event_id)}")
        return Cause(Situation.BLOCKED, (f"{behind}, and {lines}.", *cause.sentences), cause.steps)
    if _failing(snapshot) is not None:
        return None
    first = next((each for each in snapshot.located.sightings if "waiting" in each.scores), None)
    line = None if first is None else first.line
    holder = None if line is None else snapshot.head_of(line)
    if holder is None:
        return None
    cause = cause_of(snapshot, holder, f"Event {quoted(holder.event_id)}")
    if cause.situation is Situation.CLAIMED and (stats.oldest_waiting or timedelta(0)) < LATE:
        return None  # the line moves
    if cause.situation is Situation.KEY_PAUSED:
        keys = f"{are(due, 'due event')} in lines that are paused or behind their heads"
        return Cause(Situation.KEY_PAUSED, (f"No event can be claimed: {keys}.", *cause.sentences), cause.steps)
    text = f"{behind}; the first of these heads is event {quoted(holder.event_id)}."
    return Cause(Situation.WAITING, (text, *cause.sentences), cause.steps)


def _blocking_head(snapshot: Snapshot) -> Sighting | None:
    """The DEAD event whose line has been blocked for longest."""
    for each in snapshot.located.sightings:
        if "dead" in each.scores and each.line is not None and each.line.rank == 0:
            return each
    return None


def _failing(snapshot: Snapshot) -> Cause | None:
    """Relays are alive and publish nothing but failures."""
    alive = snapshot.alive
    failing = [relay for relay in alive if relay.failures_in_row >= FAILURES and not relay.rate]
    retries = snapshot.stats.phases[Phase.RETRY_SCHEDULED]
    if not alive or len(failing) < len(alive) or not (retries or _claimable(snapshot)):
        return None
    worst = max(failing, key=lambda relay: relay.failures_in_row)
    text = f"The last {counted(worst.failures_in_row, 'attempt')} of relay {quoted(worst.name)} failed, the latest with"
    relays = "It is the only relay alive" if len(alive) == 1 else f"All {len(alive):,} relays fail"
    after = f"{relays}; the target is {quoted(worst.target) or 'unknown'}, and {wait(retries)} for a retry."
    return Cause(
        Situation.FAILING,
        (sentence(f"{text}: {quoted(worst.last_error)}"), after),
        (Step("see the events that failed", ("list", "--state", "pending")), SEE_RELAYS),
    )


def _only_scheduled(snapshot: Snapshot) -> Cause | None:
    """Nothing is due, and nothing is in flight."""
    stats = snapshot.stats
    pending = _pending(snapshot)
    if not pending or stats.phases[Phase.AVAILABLE] or stats.phases[Phase.IN_FLIGHT]:
        return None
    retries = stats.phases[Phase.RETRY_SCHEDULED]
    when = "" if stats.next_due is None else f"; the next one is due in {format_duration(stats.next_due)}"
    of_them = f" ({retries:,} for a retry)" if retries else ""
    text = f"No event is due: {wait(pending)} for {'its' if pending == 1 else 'their'} time{of_them}{when}."
    if not snapshot.alive:
        return Cause(Situation.SCHEDULED, (text, no_relay_sentence(snapshot)), (START_RELAY,))
    first = next((each for each in snapshot.located.sightings if "pending" in each.scores), None)
    steps = (by_id("see why the first of them waits", "why", event_id=first.event_id),) if first else ()
    return Cause(Situation.RETRY_SCHEDULED if retries == pending else Situation.SCHEDULED, (text,), steps)


def _suspects_only(snapshot: Snapshot) -> Cause | None:
    """The due events are suspects, and one of them is claimed: the others wait for it."""
    other = snapshot.located.suspect
    first = next((each for each in snapshot.located.sightings if "suspect" in each.scores), None)
    due = _claimable(snapshot)
    if other is None or first is None or not due or due > snapshot.stats.suspects:
        return None
    cause = cause_of(snapshot, first, f"Event {quoted(first.event_id)}")
    if cause.situation is not Situation.SUSPECT:
        return None
    text = "The only due event is a suspect." if due == 1 else f"All {due:,} due events are suspects."
    crashing = _crashing(snapshot)
    sentences, steps = ((), ()) if crashing is None else (crashing.sentences, crashing.steps)
    steps += tuple(step for step in cause.steps if step not in steps)
    return Cause(Situation.SUSPECT, (*sentences, text, *cause.sentences), steps)


def _crashing(snapshot: Snapshot) -> Cause | None:
    """An event that probably crashes each relay that claims it."""
    suspects = [each for each in snapshot.located.sightings if _expiries(each) >= SUSPECT_FROM]
    if not suspects:
        return None
    # Of equal ones, the one that is claimed: it is claimed alone.
    worst = max(suspects, key=lambda each: (_expiries(each), "claimed" in each.scores))
    count, record = _expiries(worst), worst.record
    others = snapshot.stats.suspects - ("suspect" in worst.scores)
    held = f"Event {quoted(worst.event_id)} was held by {count:,} relays that died ({count:,} expired leases in a row)"
    if "claimed" in worst.scores and record is not None:
        sentences = [
            f"{held}, and is claimed by relay {quoted(record.claimed_by or 'unknown')}: the next crash is likely."
        ]
    else:
        sentences = [f"{held}: when a relay claims it, the next crash is likely."]
    if others:
        too = f"{many(others, 'other event', 'is a suspect', 'are suspects')} too, and probably innocent"
        sentences.append(f"{too}: a relay that dies holds many events. Suspects are claimed alone, to tell them apart.")
    steps = (
        by_id("mark it DEAD, so that no relay claims it", "kill", event_id=worst.event_id),
        by_id("see what is known about it", "why", event_id=worst.event_id),
    )
    return Cause(Situation.SUSPECT, tuple(sentences), steps)


def _expiries(sighting: Sighting) -> int:
    """Expired leases in a row of an event that relays claim or hold."""
    record = sighting.record
    return record.expiries if record is not None and sighting.scores.keys() & {"claimed", "suspect"} else 0


def _late(snapshot: Snapshot) -> Cause | None:
    """Relays are alive, and events are due for long: a ramp, a backlog, or publishes that do not end."""
    stats = snapshot.stats
    age, due = stats.oldest_available, _claimable(snapshot)
    if age is None or age < LATE or not due:
        return None
    text = f"{are(due)} due, the oldest for {format_duration(age)}"
    if stats.waiting_due:
        text += f", and {wait(stats.waiting_due, 'more due event')} in lines"
    obstacle = find_obstacle(snapshot)
    if obstacle is not None and obstacle.situation is Situation.RAMPING:
        return Cause(Situation.RAMPING, (*obstacle.sentences, f"{text}."), obstacle.steps)
    alive = snapshot.alive
    rate, held = sum(relay.rate or 0.0 for relay in alive), sum(relay.in_flight for relay in alive)
    relays, holding = f"{are(len(alive), 'relay')} alive", f"{counted(held, 'event')} in flight"
    more = Step("start another relay, with the URL of the target", ("relay", "--to", "URL"))
    if rate > 0:
        length = format_duration(timedelta(seconds=(due + stats.waiting_due) / rate))
        pace = f"published {rate:,.3g} events/s before the last heartbeat"
        after = f"{relays} and {pace}: at that rate, the backlog takes {length}, if no event is added."
        return Cause(Situation.BACKLOG, (f"{text}.", after), (more, SEE_RELAYS))
    if any(relay.rate is None for relay in alive):
        after = f"{relays}, with {holding}; an older relay does not report its rate."
        return Cause(Situation.BACKLOG, (f"{text}.", after), (SEE_RELAYS,))
    died = _may_have_died(snapshot)
    if died:
        return Cause(Situation.STALLED, (f"{text}.", *died), (SEE_RELAYS, more))
    after = f"{relays}, with {holding}, but published none before the last heartbeat: the target is slow, or hangs."
    if held:
        limit = "A relay gives up a publish that lasts longer than its --time-limit, and tries the event again later."
        return Cause(Situation.STALLED, (f"{text}.", after, limit), (SEE_RELAYS, SEE_CLAIMED))
    one = len(alive) == 1
    after = f"{relays}, but {'claims nothing: its log says why' if one else 'claim nothing: their logs say why'}."
    return Cause(Situation.STALLED, (f"{text}.", after), (SEE_RELAYS, DOCTOR))


def _may_have_died(snapshot: Snapshot) -> tuple[str, ...]:
    """Signs that the relays, whose last heartbeats are recent, have just died."""
    stats, seen = snapshot.stats, min((relay.seen for relay in snapshot.alive), default=timedelta(0))
    found: list[str] = []
    if stats.overdue:
        found.append(f"{many(stats.overdue, 'claim', 'has', 'have')} expired{_first_holder(snapshot)}.")
    if seen > MISSED_BEAT:
        found.append(f"The last heartbeat of a relay came {format_duration(seen)} ago: it may have died.")
    return tuple(found)


def _full(snapshot: Snapshot) -> Cause | None:
    most, pending = snapshot.stats.settings.max_pending, _pending(snapshot)
    if not most or pending < most:
        return None
    held = counted(pending, "pending event")
    text = f"The box is full: it holds {held}, and max_pending is {most:,}, so puts are refused."
    return Cause(Situation.BOX_FULL, (text,), (SEE_RELAYS,))


def _lost(snapshot: Snapshot) -> Cause | None:
    sentences = _lost_sentences(snapshot)
    return Cause(Situation.LOST, sentences, (DOCTOR, REPAIR)) if sentences else None


CAUSES: Final[tuple[Callable[[Snapshot], Cause | None], ...]] = (
    _store_refuses,
    _paused,
    _crash_loop,
    _due_and_obstructed,
    _retrying_behind_breakers,
    _leases_expired,
    _blocked,
    _failing,
    _suspects_only,
    _crashing,
    _only_scheduled,
    _late,
    _full,
    _lost,
)


def _flowing(snapshot: Snapshot) -> Cause:
    stats, alive = snapshot.stats, snapshot.alive
    due, held = stats.phases[Phase.AVAILABLE], stats.phases[Phase.IN_FLIGHT]
    if not _pending(snapshot) and not held:
        text = "Nothing is stuck: no event is pending or claimed."
    else:
        oldest = f", the oldest for {format_duration(stats.oldest_available)}" if stats.oldest_available else ""
        ended = f", {stats.overdue:,} of them with a lease that has just ended" if stats.overdue else ""
        text = f"Nothing is stuck: {are(due)} due{oldest}, and {held:,} in flight{ended}."
    rate = sum(relay.rate or 0.0 for relay in alive)
    published = f"{many(stats.totals.get('published', 0), 'event', 'was', 'were')} published so far"
    if not alive:
        return Cause(Situation.FLOWING, (text, f"{no_relay_sentence(snapshot)[:-1]}; {published}."), (START_RELAY,))
    pace = f", {rate:,.3g} events/s before the last heartbeat" if rate else ""
    return Cause(Situation.FLOWING, (text, f"{are(len(alive), 'relay')} alive{pace}; {published}."))


# --- beside the cause --------------------------------------------------------------------------------------------


def _beside(snapshot: Snapshot, cause: Cause) -> tuple[tuple[str, ...], tuple[Step, ...]]:
    """Dead events, blocked lines, suspects and lost events, which do not keep other events from flowing."""
    stats = snapshot.stats
    sentences: list[str] = []
    steps: list[Step] = []
    dead = stats.phases[Phase.DEAD]
    if dead > (cause.situation is Situation.BLOCKED):  # the cause names one of them
        oldest = f", the oldest for {format_duration(stats.oldest_dead)}" if stats.oldest_dead else ""
        sentences.append(f"Besides, {are(dead)} DEAD{oldest}.")
        steps.append(Step("see why they died", ("dead", "list", "--by-error")))
    head = _blocking_head(snapshot)
    if head is not None and cause.situation is not Situation.BLOCKED:
        sentences.append(f"{are(stats.blocked, 'ordering key')} blocked by a DEAD event.")
        steps.append(by_id("see the first of these events", "why", event_id=head.event_id))
    if snapshot.first_paused is not None and cause.situation is not Situation.KEY_PAUSED:
        key, pause = snapshot.first_paused
        which = repr(quoted(key)) if stats.paused_keys == 1 else f"such as {quoted(key)!r}"
        paused = f"{are(stats.paused_keys, 'ordering key')} paused, {which}"
        sentences.append(f"Besides, {paused} {because(pause.who, pause.why)}.")
        steps.append(Step("let relays claim its events again", ("resume", f"--key={key}")))
    sick = None if cause.situation is Situation.BREAKER_OPEN else open_breaker_sentence(snapshot.alive)
    if sick is not None:
        sentences.append(sick)
        steps.append(SEE_RELAYS)
    crashing = None if cause.situation is Situation.SUSPECT else _crashing(snapshot)
    if crashing is not None:
        sentences += crashing.sentences
        steps += crashing.steps
    if cause.situation is not Situation.LOST and (found := _lost_sentences(snapshot)):
        sentences += found
        steps += [DOCTOR, REPAIR]
    unseen = snapshot.unindexed
    if unseen is not None and not unseen.found and not unseen.complete and not stats.unreadable:
        stored = f"{many(unseen.missing, 'event', 'was', 'were')} put, but {'is' if unseen.missing == 1 else 'are'}"
        sentences.append(f"By the totals, {stored} neither in an index nor removed: the box may be damaged.")
        steps.append(Step("look for events that are in no index", ("doctor", "--full")))
    return tuple(sentences), tuple(step for step in steps if step not in cause.steps)


def _lost_sentences(snapshot: Snapshot) -> tuple[str, ...]:
    """Events in no index, and ids without a complete event."""
    sentences: list[str] = []
    unseen = snapshot.unindexed
    if unseen is not None and unseen.found:
        least = "" if unseen.complete else "At least "
        them = "it, and it is" if unseen.found == 1 else "them, and they are"
        sentences.append(f"{least}{are(unseen.found)} stored, but in no index: no relay finds {them} not delivered.")
    lost, ids = snapshot.stats.lost, snapshot.stats.lost_ids
    if lost:
        named = ", ".join(quoted(each) for each in ids[:3]) + (", ..." if lost > 3 else "")
        sentences.append(f"{are(lost)} lost, and never delivered: {named}.")
    return tuple(sentences)


def _facts(snapshot: Snapshot) -> dict[str, Any]:
    stats = snapshot.stats
    names = ("waiting", "waiting_due", "suspects", "overdue", "blocked", "lost", "paused")
    ages = ("oldest_available", "next_due", "oldest_waiting", "first_lease_ends", "oldest_dead")
    info = {} if snapshot.server is None else snapshot.server.info
    return {
        "phases": stats.phases,
        **{name: getattr(stats, name) for name in names},
        **{name: age.total_seconds() for name in ages if (age := getattr(stats, name)) is not None},
        "totals": stats.totals,
        "relays": [relay_facts(relay) for relay in stats.relays],
        "server": {name: info[name] for name in _MEMORY if name in info},
    }


_MEMORY: Final = (
    "used_memory", "maxmemory", "maxmemory_policy", "role", "rdb_last_bgsave_status", "aof_last_write_status",
)  # fmt: skip
