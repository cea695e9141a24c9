"""Explains a box: the one most likely cause that its events do not flow, or the evidence that they do."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, NamedTuple

from redbox.arguments import counted
from redbox.box.reports import LATELY, SILENT
from redbox.box.why.beside import remarks
from redbox.box.why.event import DOCTOR, REAP, REPAIR, cause_of
from redbox.box.why.explanation import Cause, Explanation, Situation, Step, by_id
from redbox.box.why.obstacles import (
    MISSED_BEAT,
    SEE_RELAYS,
    SLOWED,
    SPARE_EVENTS,
    START_ANOTHER,
    alive_words,
    find_obstacle,
    no_relay_sentence,
    relay_facts,
    start_relay,
)
from redbox.box.why.signs import (
    SEE_BOXES,
    SEE_CLAIMED,
    SEE_ERRORS,
    blocking_head,
    dead_events,
    find_crashing,
    first_claimed,
    fresh_relays,
    lost_sentences,
    silent_holder,
)
from redbox.box.why.snapshot import RECENT, Snapshot
from redbox.box.why.words import are, many, pace, quoted, sentence, wait
from redbox.durations import format_duration
from redbox.events import Phase
from redbox.rates import per_second

#: An event that is due for longer than this is late: relays that can keep up claim it within a second.
LATE: Final = timedelta(seconds=5)
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
    beside = remarks(snapshot, cause)
    return Explanation(
        subject=f"box {snapshot.box}",
        situation=cause.situation,
        at=snapshot.clock.now,
        sentences=(*cause.sentences, *beside.sentences),
        next_steps=(*cause.steps, *beside.steps),
        evidence=_facts(snapshot),
        in_words=_in_words(snapshot, cause),
    )


def _in_words(snapshot: Snapshot, cause: Cause) -> str:
    """The situation, with fresh deaths: whom they paged may read no further."""
    flows = cause.situation is Situation.FLOWING
    words = cause.situation.in_words
    if flows and not snapshot.alive:
        words, flows = "nothing is stuck, but no relay is alive", False
    elif flows and _limits(snapshot) is not None:
        words += f", at the limit {' and '.join(snapshot.stats.limits_reached)}"
    elif cause == _crashed(snapshot):
        words = _crashed_words(snapshot)
    deaths = _fresh_deaths(snapshot)
    if deaths is None or (cause.situation is Situation.FAILING and SEE_ERRORS in cause.steps):
        return words
    return f"{words}, {'but' if flows else 'and'} {counted(deaths.died, 'event')} became DEAD in the last {deaths.last}"


# --- counts ------------------------------------------------------------------------------------------------------


def _claimable(snapshot: Snapshot) -> int:
    """Due events that are not behind the head of their line."""
    return snapshot.stats.phases[Phase.AVAILABLE] - snapshot.stats.waiting_due


def _pending(snapshot: Snapshot) -> int:
    phases = snapshot.stats.phases
    return sum(phases[phase] for phase in (Phase.AVAILABLE, Phase.SCHEDULED, Phase.RETRY_SCHEDULED))


def _oldest(snapshot: Snapshot) -> str:
    """`, the oldest for 3 s (put 10 min ago)`: an event is due anew with each retry."""
    age = snapshot.stats.oldest_available
    if not age:
        return ""
    first = next((each.record for each in snapshot.located.sightings if "pending" in each.scores), None)
    tried = first is not None and first.phase is Phase.AVAILABLE and first.attempts > 0
    put = f" (put {snapshot.clock.ago(first.created_at)})" if tried and first is not None else ""
    return f", the oldest for {format_duration(age)}{put}"


def _more_retries(count: int) -> str:
    """`58 more wait for a retry`."""
    return f"{count:,} more {'waits' if count == 1 else 'wait'} for a retry"


# --- the causes, in their order ----------------------------------------------------------------------------------


def _store_refuses(snapshot: Snapshot) -> Cause | None:
    """A server that refuses writes; and that no relay is alive, which a repair of the server does not change."""
    cause = _server_refuses(snapshot)
    if cause is None or snapshot.alive or (snapshot.server is not None and snapshot.server.is_replica):
        return cause  # relays do not use a replica, and their heartbeats reach it late
    return Cause(
        cause.situation, (*cause.sentences, no_relay_sentence(snapshot)), (*cause.steps, start_relay(snapshot))
    )


def _server_refuses(snapshot: Snapshot) -> Cause | None:
    """Nothing can be put; with a full disk or on a replica, nothing can be claimed or settled either."""
    server = snapshot.server
    if server is None:
        return None
    if server.full:
        text = f"The server is full: it uses {server.memory}, with the policy {server.setting('maxmemory-policy')}."
        after = "Puts and replays that need more than is left are refused."
        if snapshot.alive and not snapshot.stats.paused:
            after += " Relays go on: they claim and settle the events that are stored."
        delivered = snapshot.stats.phases[Phase.COMPLETED]
        room = (
            f"This box holds {counted(delivered, 'delivered event')}, which a sweep can remove; a plain sweep removes "
            "only those past their retention."
        )
        if not delivered:
            room = "This box holds no delivered event, so a sweep makes no room."
        more = "raise maxmemory, or look for other boxes and other data on the server."
        more = f"Otherwise {more}" if delivered else f"R{more[1:]}"
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
    if cause is None or cause.situation in SLOWED or not (due or stats.overdue):
        return None
    parts = [f"{are(due)} due{_oldest(snapshot)}"] if due else []
    if due and (retries := stats.phases[Phase.RETRY_SCHEDULED]):
        parts.append(_more_retries(retries))
    if stats.overdue:
        parts.append(f"{many(stats.overdue, 'claim', 'has', 'have')} expired{_first_holder(snapshot)}")
    steps = (*cause.steps, REAP) if stats.overdue else cause.steps
    return Cause(cause.situation, (*cause.sentences, f"Meanwhile {', and '.join(parts)}."), steps)


def _first_holder(snapshot: Snapshot) -> str:
    """`, the first one held by relay relay-1`: who held the claim whose lease ended first."""
    first = first_claimed(snapshot)
    if first is None or first.record is None or not first.record.claimed_by:
        return ""
    which = "held by" if snapshot.stats.overdue == 1 else "the first one held by"
    return f", {which} relay {quoted(first.record.claimed_by)}"


def _crash_loop(snapshot: Snapshot) -> Cause | None:
    """No relay is alive, and an event has probably crashed them: a relay that is started would die as well."""
    crashing = None if snapshot.alive else find_crashing(snapshot)
    if crashing is None:
        return None
    after = _due_and_obstructed(snapshot) or Cause(
        Situation.NO_RELAY, (no_relay_sentence(snapshot),), (start_relay(snapshot),)
    )
    steps = tuple(dict.fromkeys((*crashing.steps, *after.steps)))
    return Cause(Situation.SUSPECT, (*crashing.sentences, *after.sentences), steps)


def _retrying_behind_breakers(snapshot: Snapshot) -> Cause | None:
    """All breakers are open, or all calls hang, and the events that failed wait for their retry."""
    cause, stuck = find_obstacle(snapshot), (Situation.BREAKER_OPEN, Situation.STALLED)
    if cause is None or cause.situation not in stuck or not _pending(snapshot):
        return None
    return Cause(cause.situation, (*cause.sentences, f"{wait(_pending(snapshot))} for the target."), cause.steps)


def _crashed(snapshot: Snapshot) -> Cause | None:
    """The heartbeats of all relays are overdue, and claims have expired: the relays have probably just crashed."""
    if not snapshot.stats.overdue or not snapshot.alive or fresh_relays(snapshot):
        return None
    return Cause(Situation.STALLED, _may_have_died(snapshot), (SEE_RELAYS, start_relay(snapshot, START_ANOTHER)))


def _crashed_words(snapshot: Snapshot) -> str:
    """`the only relay may have crashed: last heartbeat 12 s ago`."""
    alive = snapshot.alive
    which = "the only relay" if len(alive) == 1 else f"all {len(alive):,} relays"
    return f"{which} may have crashed: last heartbeat {format_duration(min(relay.seen for relay in alive))} ago"


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
    head = blocking_head(snapshot)
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
        if any(relay.rate for relay in fresh_relays(snapshot)):
            return None  # events of other ordering keys are published as soon as they are due
        whose = "its" if due == 1 else "their"
        held = f"{whose} ordering key is paused, or an earlier event of it is not settled"
        text = f"No event can be claimed: {are(due)} due, but {held}."
        return Cause(Situation.KEY_PAUSED, (text, *cause.sentences), cause.steps)
    text = f"{behind}; the first of these heads is event {quoted(holder.event_id)}."
    return Cause(Situation.WAITING, (text, *cause.sentences), cause.steps)


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
    waits = f"{wait(retries)} for a retry" if retries else f"{are(_claimable(snapshot))} due"
    after = f"{relays}; the target is {quoted(worst.target) or 'unknown'}, and {waits}."
    return Cause(
        Situation.FAILING,
        (sentence(f"{text}: {quoted(worst.last_error)}"), after),
        (Step("see the events that failed", ("list", "--state", "pending")), SEE_RELAYS),
    )


class _Deaths(NamedTuple):
    """How many events became DEAD, and how many were published, in a period that ends now."""

    period: timedelta
    died: int
    published: int

    @property
    def last(self) -> str:
        return format_duration(self.period)

    @property
    def sentence(self) -> str:
        others = f"{self.published:,} {'was' if self.published == 1 else 'were'}" if self.published else "none was"
        return f"In the last {self.last}, {counted(self.died, 'event')} became DEAD, and {others} published."


def _fresh_deaths(snapshot: Snapshot) -> _Deaths | None:
    """The deaths of the last minutes, if any, without those by an operator."""
    stats = snapshot.stats
    newest, published = stats.newest_dead, stats.published_lately
    died = stats.died_lately - snapshot.killed_lately
    if newest is None or newest > RECENT or died <= 0:
        return None
    period = LATELY + newest
    if not stats.phases[Phase.COMPLETED]:  # relays may delete what they publish
        published = round(sum(relay.rate or 0.0 for relay in snapshot.alive) * period.total_seconds())
    return _Deaths(period, died, published)


def _dying(snapshot: Snapshot) -> Cause | None:
    """At least as many events became DEAD recently as were published."""
    deaths = _fresh_deaths(snapshot)
    if deaths is None or deaths.published > deaths.died:
        return None
    pending = _pending(snapshot)
    steps = (SEE_ERRORS, SPARE_EVENTS) if pending and snapshot.alive else (SEE_ERRORS,)
    left = f" {are(pending, 'other event')} pending." if pending else ""
    return Cause(Situation.FAILING, (deaths.sentence, f"{dead_events(snapshot)}.{left}"), steps)


def _held_by_a_silent_relay(snapshot: Snapshot) -> Cause | None:
    """Nothing is left to claim, and a relay that has probably died holds events."""
    text = silent_holder(snapshot)
    if text is None or _claimable(snapshot) or any(relay.rate for relay in fresh_relays(snapshot)):
        return None
    if not snapshot.alive:
        return Cause(Situation.NO_RELAY, (no_relay_sentence(snapshot), text), (start_relay(snapshot),))
    return Cause(Situation.STALLED, (text,), (SEE_CLAIMED, SEE_RELAYS))


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
        return Cause(Situation.SCHEDULED, (text, no_relay_sentence(snapshot)), (start_relay(snapshot),))
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
    crashing = find_crashing(snapshot)
    if crashing is None:
        return Cause(Situation.SUSPECT, (text, *cause.sentences), cause.steps)
    # The one that waits is probably innocent: no command kills it.
    return Cause(Situation.SUSPECT, (*crashing.sentences, text, *cause.sentences), crashing.steps)


def _late(snapshot: Snapshot) -> Cause | None:
    """Relays are alive, and events are due for long: a ramp, a limit, a backlog, or publishes that do not end."""
    stats = snapshot.stats
    age, due = stats.oldest_available, _claimable(snapshot)
    if age is None or age < LATE or not due:
        return None
    text = f"{are(due)} due{_oldest(snapshot)}"
    if stats.waiting_due:
        text += f", and {wait(stats.waiting_due, 'more due event')} in lines"
    if retries := stats.phases[Phase.RETRY_SCHEDULED]:
        text += f", and {_more_retries(retries)}"
    obstacle = find_obstacle(snapshot)
    if obstacle is not None and obstacle.situation in SLOWED:
        time_left = _at_the_limit(snapshot, due + stats.waiting_due)
        return Cause(obstacle.situation, (*obstacle.sentences, f"{text}.", *time_left), obstacle.steps)
    alive = snapshot.alive
    rate, held = sum(relay.rate or 0.0 for relay in alive), sum(relay.in_flight for relay in alive)
    relays, holding = alive_words(alive), f"{counted(held, 'event')} in flight"
    more = start_relay(snapshot, START_ANOTHER)
    if rate > 0:
        length = format_duration(timedelta(seconds=(due + stats.waiting_due) / rate))
        published = f"published {pace(rate)} events/s before the last heartbeat"
        after = f"{relays} and {published}: at that rate, the backlog takes {length}, if no event is added."
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


def _at_the_limit(snapshot: Snapshot, due: int) -> tuple[str, ...]:
    """How long the due events take at max_rate, if that is what holds them back."""
    stats, rate = snapshot.stats, snapshot.stats.settings.max_rate
    if rate is None or "max_rate" not in stats.limits_reached:
        return ()
    length = format_duration(timedelta(seconds=due / per_second(rate)))
    return (f"At {rate}, that takes {length}, if no event is added.",)


def _limits(snapshot: Snapshot) -> Cause | None:
    """The limits that hold back due events."""
    obstacle = find_obstacle(snapshot) if snapshot.stats.phases[Phase.AVAILABLE] else None
    return obstacle if obstacle is not None and obstacle.situation is Situation.LIMIT_REACHED else None


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
    sentences = lost_sentences(snapshot)
    return Cause(Situation.LOST, sentences, (DOCTOR, REPAIR)) if sentences else None


CAUSES: Final[tuple[Callable[[Snapshot], Cause | None], ...]] = (
    _store_refuses,
    _paused,
    _crash_loop,
    _due_and_obstructed,
    _retrying_behind_breakers,
    _crashed,
    _leases_expired,
    _blocked,
    _dying,
    _failing,
    _suspects_only,
    find_crashing,
    _held_by_a_silent_relay,
    _only_scheduled,
    _late,
    _full,
    _lost,
)


def _flowing(snapshot: Snapshot) -> Cause:
    stats, alive = snapshot.stats, snapshot.alive
    deaths = _fresh_deaths(snapshot)
    died = () if deaths is None else (deaths.sentence, f"{dead_events(snapshot)}.")
    see = () if deaths is None else (SEE_ERRORS,)
    due, held = stats.phases[Phase.AVAILABLE], stats.phases[Phase.IN_FLIGHT]
    due -= min(snapshot.behind_paused, stats.waiting_due)
    if not _pending(snapshot) and not held:
        text = "Nothing is stuck: no event is pending or claimed."
    else:
        oldest = _oldest(snapshot)
        ended = f", {stats.overdue:,} of them with a lease that has just ended" if stats.overdue else ""
        state = "The other events flow" if snapshot.behind_paused else "Nothing is stuck"
        text = f"{state}: {are(due)} due{oldest}, and {held:,} in flight{ended}."
    rate = sum(relay.rate or 0.0 for relay in alive)
    published = f"{many(stats.totals.get('published', 0), 'event', 'was', 'were')} published so far"
    if not alive:
        nobody = f"{no_relay_sentence(snapshot)} {sentence(published)}"
        return Cause(Situation.FLOWING, (*died, text, nobody), (*see, start_relay(snapshot)))
    before = f", {pace(rate)} events/s before the last heartbeat" if rate else ""
    at_limit = _limits(snapshot) or Cause(Situation.FLOWING, ())
    sentences = (*died, *at_limit.sentences, text, f"{alive_words(alive)}{before}; {published}.")
    return Cause(Situation.FLOWING, sentences, (*see, *at_limit.steps))


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
