"""Explains one event. Every function here is pure: a snapshot in, sentences out."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from redbox.arguments import counted
from redbox.box.reports import SILENT
from redbox.box.why.explanation import Cause, Explanation, Situation, Step, by_id
from redbox.box.why.obstacles import (
    MISSED_BEAT,
    SEE_RELAYS,
    SLOWED,
    alive_words,
    find_obstacle,
    relay_facts,
    start_relay,
)
from redbox.box.why.snapshot import Snapshot
from redbox.box.why.words import are, because, pace, quoted, sentence, wait
from redbox.durations import format_duration
from redbox.events import Phase, Record, State, from_ms
from redbox.rates import per_second
from redbox.store.scripts.replies import LoggedEntry, Sighting

#: Expired leases in a row that make an event a suspect, as in lua/include/enqueue.lua.
SUSPECT_FROM: Final = 2
#: A heartbeat may have been written this long before it reached the store.
BEAT_DELAY: Final = timedelta(seconds=1)
#: Indexes that hold an event in its state; `lost` is none of them.
_HOMES: Final = ("pending", "waiting", "suspect", "claimed", "published", "dead")
REAP: Final = Step("return expired claims to PENDING now", ("reap",))
DOCTOR: Final = Step("check the whole box, and see how to repair it", ("doctor",))
#: It asks first.
REPAIR: Final = Step("repair the box, so that whole events are delivered", ("doctor", "--repair"))


def explain_event(snapshot: Snapshot, event_id: str) -> Explanation:
    """Where the event is, since when, why, and what happens next."""
    sighting = snapshot.sighting(event_id)
    assert sighting is not None, "locate reports every id that it is asked for"
    cause = cause_of(snapshot, sighting)
    record = sighting.record
    kind = f" of type {quoted(record.event.event_type)}" if record is not None and record.event.event_type else ""
    return Explanation(
        subject=f"event {quoted(event_id)}{kind}",
        situation=cause.situation,
        at=snapshot.clock.now,
        sentences=cause.sentences,
        next_steps=cause.steps,
        evidence=event_facts(snapshot, sighting),
        found=record is not None or cause.situation is Situation.LOST,
    )


def cause_of(snapshot: Snapshot, sighting: Sighting, name: str = "It", *, as_head: bool = False) -> Cause:
    """Why the event is where it is. `name` is the event as the subject of a sentence. With `as_head`, the event
    explains another one, and no further event is explained: damaged lines may be crossed."""
    record = sighting.record
    homeless = not any(index in sighting.scores for index in _HOMES)
    if record is None:
        return _without_record(snapshot, sighting, name, homeless=homeless)
    if homeless:
        return _lost(snapshot, sighting, name)
    if record.damaged:
        return _damaged(record, name)
    if record.superseded_by is not None:
        return _superseded(record, name)
    if record.state is State.PUBLISHED:
        return _published(snapshot, record, name)
    if record.state is State.DEAD:
        return _dead(snapshot, sighting, record, name)
    if record.state is State.CLAIMED:
        return _claimed(snapshot, sighting, record, name)
    if "waiting" in sighting.scores:
        return _waiting(snapshot, sighting, record, name, as_head=as_head)
    if record.phase is not Phase.AVAILABLE:
        return _not_due(snapshot, record, name)
    return _available(snapshot, sighting, record, name)


# --- PENDING -----------------------------------------------------------------------------------------------------


def _not_due(snapshot: Snapshot, record: Record, name: str) -> Cause:
    clock, ahead = snapshot.clock, snapshot.clock.ahead(record.available_at)
    step = by_id("make it due now", "reschedule", event_id=record.event_id)
    if record.phase is Phase.RETRY_SCHEDULED:
        text = f"{name} waits for attempt {record.attempts + 1}, due {ahead}"
        sentences = [sentence(f"{text}: {_last_attempt(snapshot, record)}"), *_suspicion(record)]
        situation = Situation.RETRY_SCHEDULED
    else:
        put = f"and was put {clock.ago(record.created_at)}"
        sentences = [f"{name} is scheduled: it is due {ahead}, {put}.", *_suspicion(record)]
        situation = Situation.SCHEDULED
    obstacle = find_obstacle(snapshot, record.event.ordering_key)
    if obstacle is None or obstacle.situation in SLOWED:
        return Cause(situation, (*sentences, "Then a relay claims it."), (step,))
    first = obstacle.sentences[0]
    return Cause(situation, (*sentences, f"But {first[0].lower()}{first[1:]}"), (*obstacle.steps, step))


def _last_attempt(snapshot: Snapshot, record: Record) -> str:
    """`attempt 2 failed 3 s ago with: HTTP 503`."""
    last = record.history[-1] if record.history else None
    error = quoted(record.last_error or "")
    if last is not None and last.outcome == "released":
        return f"attempt {record.attempts} was released {snapshot.clock.ago(last.at)} by {quoted(last.by)}"
    if last is not None and last.outcome == "expired":
        expired = f"the lease of attempt {record.attempts} expired {snapshot.clock.ago(last.at)}"
        return f"{expired} while relay {quoted(last.by)} held it"
    if last is not None and last.outcome == "retried":
        words = f"attempt {record.attempts} failed {snapshot.clock.ago(last.at)}"
        return f"{words} with: {error}" if error else words
    return f"it was attempted {counted(record.attempts, 'time')}" + (f", and failed with: {error}" if error else "")


def _waiting(snapshot: Snapshot, sighting: Sighting, record: Record, name: str, *, as_head: bool) -> Cause:
    line = sighting.line
    if line is None or line.head is None:  # the event says that it has no line: damage that an audit reports
        text = f"{name} is stored as waiting behind the head of a line, but there is no such line."
        return Cause(Situation.WAITING, (text,), (DOCTOR,))
    if line.head == sighting.event_id:
        return _waiting_head(snapshot, record, name)
    place = "" if line.rank is None else f", as number {line.rank + 1:,} of {line.length:,}"
    head_words = f"the head of the line of ordering key {quoted(line.key)!r}"
    text = f"{name} waits behind event {quoted(line.head)}, {head_words}{place}."
    later = record.phase is not Phase.AVAILABLE
    own = (f"{name} itself is due {snapshot.clock.ahead(record.available_at)}.",) if later else ()
    head = snapshot.head_of(line)
    if head is None or as_head:
        return Cause(Situation.WAITING, (text, *own), (DOCTOR,))
    cause = cause_of(snapshot, head, f"Event {quoted(line.head)}", as_head=True)
    return Cause(Situation.WAITING, (text, *cause.sentences, *own, *_suspicion(record)), cause.steps)


def _waiting_head(snapshot: Snapshot, record: Record, name: str) -> Cause:
    """The head of a line that no relay may claim, because its ordering key is paused."""
    due = f"it is due {snapshot.clock.ahead(record.available_at)}"
    if record.phase is Phase.AVAILABLE:
        due = f"it has been due for {snapshot.clock.age(record.available_at)}"
    text = f"{name} is the head of its line, and {due}."
    obstacle = find_obstacle(snapshot, record.event.ordering_key)
    if obstacle is None or obstacle.situation not in (Situation.PAUSED, Situation.KEY_PAUSED):
        over = "Its ordering key was paused; the pause is over, and a relay makes it available within seconds."
        return Cause(Situation.KEY_PAUSED, (text, over), (Step("do that now", ("reap",)),))
    return Cause(obstacle.situation, (text, *obstacle.sentences), obstacle.steps)


def _available(snapshot: Snapshot, sighting: Sighting, record: Record, name: str) -> Cause:
    due = f"{name} has been due for {snapshot.clock.age(record.available_at)}"
    failed = record.attempts > 0 and record.last_error is not None
    last = (sentence(f"Before, {_last_attempt(snapshot, record)}"),) if failed else ()
    before = (*last, *_suspicion(record))
    obstacle = find_obstacle(snapshot, record.event.ordering_key)
    if obstacle is not None and obstacle.situation not in SLOWED:
        stuck = f"{due}, and no relay claims it."
        return Cause(obstacle.situation, (stuck, *obstacle.sentences, *before), obstacle.steps)
    if "suspect" in sighting.scores:
        return _suspect(snapshot, record, name)
    queued = f"{due}; {_events_before(sighting)}."
    if obstacle is not None:
        turn = _turn_at_the_limit(snapshot, sighting)
        return Cause(obstacle.situation, (queued, *obstacle.sentences, *turn, *before), obstacle.steps)
    return Cause(Situation.QUEUED, (queued, _turn(snapshot, sighting), *before), (SEE_RELAYS,))


def _events_before(sighting: Sighting) -> str:
    if not sighting.before:
        return "no event is before it"
    return f"{are(sighting.before)} before it"


def _turn_at_the_limit(snapshot: Snapshot, sighting: Sighting) -> tuple[str, ...]:
    """When its turn comes at max_rate, if that is what holds it back."""
    rate = snapshot.stats.settings.max_rate
    if rate is None or "max_rate" not in snapshot.stats.limits_reached:
        return ()
    wait = format_duration(timedelta(seconds=(sighting.before + 1) / per_second(rate)))
    return (f"At {rate}, its turn comes in about {wait}.",)


def _turn(snapshot: Snapshot, sighting: Sighting) -> str:
    """When its turn comes, as far as the heartbeats tell."""
    alive = snapshot.alive
    relays = alive_words(alive)
    rate = sum(relay.rate or 0.0 for relay in alive)
    if rate > 0 and not sighting.before:
        return f"{relays}: it is the next event that a relay claims."
    if rate > 0:
        wait = format_duration(timedelta(seconds=sighting.before / rate))
        published = f"published {pace(rate)} events/s before the last heartbeat"
        return f"{relays} and {published}: a relay claims it in about {wait}."
    failing = next((relay for relay in alive if relay.failures_in_row and relay.last_error), None)
    if failing is not None:
        many = counted(failing.failures_in_row, "attempt")
        words = f"{relays}, but the last {many} of relay {quoted(failing.name)} failed, the latest with"
        return sentence(f"{words}: {quoted(failing.last_error)}")
    return f"{relays}: a relay claims it as soon as it has a free worker."


def _suspicion(record: Record) -> tuple[str, ...]:
    """A sentence about a suspect that something else keeps from being claimed."""
    if record.expiries < SUSPECT_FROM:
        return ()
    return (f"It is a suspect: {record.expiries} leases in a row expired while relays held it, so it may crash them.",)


def _suspect(snapshot: Snapshot, record: Record, name: str) -> Cause:
    leases = f"{record.expiries} leases in a row expired while relays held it"
    text = f"{name} is a suspect: {leases}, so it may crash relays, and a relay claims it alone."
    other = snapshot.located.suspect
    due = f"It has been due for {snapshot.clock.age(record.available_at)}"
    held = None if other is None else snapshot.sighting(other)
    by = "" if held is None or held.record is None else f" by relay {quoted(held.record.claimed_by or 'unknown')}"
    if other is not None:
        after = f"{due}, and waits until another suspect, event {quoted(other)}, which is claimed{by}, is settled."
    else:
        after = f"{due}; a relay claims it when it is the oldest due event."
    see = by_id("see which relays held it", "show", event_id=record.event_id)
    return Cause(Situation.SUSPECT, (text, after), (see, *_kill(snapshot, record, "mark it DEAD instead")))


def expired_leases(record: Record, now: datetime) -> int:
    """Expired leases in a row, with one that nobody has reaped yet."""
    return record.expiries + (record.lease_until is not None and record.lease_until <= now)


def crashed_alone(record: Record, now: datetime) -> bool:
    """Whether a relay that held nothing else died with the event: a suspect is claimed alone. Before that, it may only
    have been held together with the event that crashes relays."""
    return expired_leases(record, now) > SUSPECT_FROM


def _kill(snapshot: Snapshot, record: Record, purpose: str) -> tuple[Step, ...]:
    kill = by_id(purpose, "kill", event_id=record.event_id)
    return (kill,) if crashed_alone(record, snapshot.clock.now) else ()


# --- CLAIMED -----------------------------------------------------------------------------------------------------


def _claimed(snapshot: Snapshot, sighting: Sighting, record: Record, name: str) -> Cause:
    clock = snapshot.clock
    relay = quoted(record.claimed_by or "unknown")
    attempt = "to be marked DEAD: its attempts are used up" if sighting.exhausted else f"for attempt {record.attempts}"
    claimed = f"{name} was claimed by relay {relay} {clock.ago(record.claimed_at)}, {attempt}"
    until = record.lease_until
    if until is None or until > clock.now:
        ends = "" if until is None else f"; the lease ends {clock.ahead(until)} unless the relay renews it"
        release = by_id("take it from the relay, so that another one claims it", "release", event_id=record.event_id)
        expired, kill = _expired_before(snapshot, record, "this relay too")
        sentences = (f"{claimed}{ends}.", _holder(snapshot, record), *expired)
        return Cause(Situation.CLAIMED, sentences, (*kill, release))
    expired, kill = _expired_before(snapshot, record, "relays")
    over = " ".join((f"{claimed}, and the lease ended {clock.ago(until)}.", *expired))
    if not snapshot.alive:
        nobody = "No relay is alive, so nobody reaps it: it stays claimed until a relay runs, or until a reap by hand."
        return Cause(Situation.LEASE_EXPIRED, (over, nobody), (*kill, REAP, start_relay(snapshot)))
    if clock.now - until > SILENT:
        idle = "Relays are alive, but none of them has reaped it: they run without a reaper, or cannot write."
        return Cause(Situation.LEASE_EXPIRED, (over, idle), (*kill, REAP))
    soon = "A relay returns it to PENDING within a few seconds, unless its holder settles it first."
    return Cause(Situation.LEASE_EXPIRED, (over, soon), (*kill, REAP))


def _expired_before(snapshot: Snapshot, record: Record, victims: str) -> tuple[tuple[str, ...], tuple[Step, ...]]:
    """The leases in a row that expired before the present claim, and what to do about a suspect."""
    count = record.expiries
    if not count:
        return (), ()
    leases = f"{counted(count, 'lease')} in a row expired before, while relays held it"
    if count < SUSPECT_FROM:
        return (f"{leases}.",), ()
    text = f"It is a suspect: {leases}, so it may crash {victims}."
    if not crashed_alone(record, snapshot.clock.now):
        text = f"{text[:-1]}, or was only held together with the event that does."
    return (text,), _kill(snapshot, record, "mark it DEAD, so that no relay claims it")


def _holder(snapshot: Snapshot, record: Record) -> str:
    """Whether the relay that claimed an event is alive, and what follows from that."""
    relay = snapshot.relay(record.claimed_by)
    lost = "if it does not settle the event, the event returns to PENDING when the lease ends"
    if relay is None:
        return f"That relay sends no heartbeat, so it is not known to be alive; {lost}."
    if not relay.alive:
        return f"That relay has been silent for {format_duration(relay.seen)}; {lost}."
    held_for = timedelta(0) if record.claimed_at is None else snapshot.clock.now - record.claimed_at
    if not relay.in_flight and held_for - relay.seen > BEAT_DELAY and relay.pid:
        return f"A relay of that name is alive, but holds no event: it has probably replaced the one that died; {lost}."
    newer = next((each for each in snapshot.alive if each.host == relay.host and each.seen < relay.seen), None)
    if relay.seen > MISSED_BEAT:
        silent = f"That relay has been silent for {format_duration(relay.seen)}, and may have died"
        instead = "" if newer is None else f", and relay {quoted(newer.name)} runs on the same host"
        return f"{silent}{instead}; {lost}."
    return f"That relay is alive: its last heartbeat came {format_duration(relay.seen)} ago, and it settles the event."


# --- PUBLISHED and DEAD ------------------------------------------------------------------------------------------


def _published(snapshot: Snapshot, record: Record, name: str) -> Cause:
    clock, settings = snapshot.clock, snapshot.stats.settings
    by = quoted(record.published_by or "unknown")
    text = f"{name} was published {clock.ago(record.published_at)} by relay {by}, at attempt {record.attempts}."
    kept = "Nothing more happens to it."
    if settings.keep_published is not None and record.published_at is not None:
        removed = record.published_at + timedelta(seconds=settings.keep_published)
        when = f"{clock.ahead(removed)}" if removed > clock.now else "by the next sweep"
        kept = f"Nothing more happens to it before it is removed {when}, or sooner if the box keeps too many."
    return Cause(Situation.PUBLISHED, (text, kept))  # no command replays a published event by its id


def _dead(snapshot: Snapshot, sighting: Sighting, record: Record, name: str) -> Cause:
    attempts = f"after {counted(record.attempts, 'attempt')}"
    reason = quoted(record.last_error or "its attempts are used up")
    died = f"{name} has been DEAD for {snapshot.clock.age(record.died_at)}, {attempts}, for this reason: {reason}"
    again: tuple[Step, ...] = (by_id("return it to PENDING", "dead", "replay", event_id=record.event_id),)
    held: tuple[str, ...] = ()
    holder = snapshot.unique_holders.get(record.event_id)
    if holder is not None:
        key = quoted(record.event.unique_key or "")
        held = (f"A replay is refused while event {quoted(holder)} holds its unique key {key!r}.",)
        force = "return it to PENDING nevertheless, so that two live events have the key"
        again = (
            by_id("see where that event is", "why", event_id=holder),
            by_id(force, "dead", "replay", "--force", event_id=record.event_id),
        )
    line = sighting.line
    if line is not None and line.rank == 0:
        behind = line.length - 1
        behind_it = f"{wait(behind)} behind it"
        blocks = (
            f"It blocks the line of ordering key {quoted(line.key)!r}: {behind_it} until it is replayed or dropped."
        )
        drop = by_id("remove it for good, so that the others go on", "dead", "drop", event_id=record.event_id)
        return Cause(Situation.DEAD, (sentence(died), blocks, *held), (*again, drop))
    over = "Nothing more happens to it unless it is replayed."
    return Cause(Situation.DEAD, (sentence(died), over, *held), again)


def _superseded(record: Record, name: str) -> Cause:
    other = record.superseded_by or ""
    state = "DEAD" if record.state is State.DEAD else "PUBLISHED"
    text = f"{name} is {state}, and a patch has put event {quoted(other)} instead of it."
    step = by_id("see where the other event is", "why", event_id=other)
    return Cause(Situation.SUPERSEDED, (text, "Nothing more happens to this one."), (step,))


# --- damaged, lost, gone -----------------------------------------------------------------------------------------


def _damaged(record: Record, name: str) -> Cause:
    text = f"{name} is damaged: {sentence(quoted(record.problem or 'it cannot be read'))}"
    if record.state is State.PUBLISHED:
        remedy = "It was published before, so nothing has to be done."
    else:
        remedy = "It cannot be delivered: put it again from its source or the archive, with another id."
    return Cause(
        Situation.DAMAGED, (text, remedy), (by_id("see what is left of it", "show", event_id=record.event_id), DOCTOR)
    )


def _without_record(snapshot: Snapshot, sighting: Sighting, name: str, *, homeless: bool) -> Cause:
    if not homeless or "lost" in sighting.scores:
        return _lost(snapshot, sighting, name)
    event_id = quoted(sighting.event_id)
    removed = next((entry for entry in snapshot.log if _removes(entry)), None)
    if removed is not None:
        who, why = removed.fields.get("who", ""), removed.fields.get("why", "")
        ago = snapshot.clock.ago(from_ms(removed.at))
        text = f"Event {event_id} was dropped {ago} {because(who, why)}: it is removed for good."
        return Cause(Situation.REMOVED, (text,), (Step("see the operations log", ("log",)),))
    gone = "it was never put here, or it was removed after its retention"
    text = f"There is no event {event_id} in box {snapshot.box}: {gone}."
    sentences = [text, *(_logged(snapshot, entry) for entry in snapshot.log[:1])]
    if not snapshot.log:
        sentences.append("The operations log does not name it.")
    return Cause(Situation.UNKNOWN, tuple(sentences), (Step("list the events of the box", ("list",)),))


def _removes(entry: LoggedEntry) -> bool:
    return entry.fields.get("action") == "drop"


def _logged(snapshot: Snapshot, entry: LoggedEntry) -> str:
    action, ago = quoted(entry.fields.get("action", "")), snapshot.clock.ago(from_ms(entry.at))
    who = because(entry.fields.get("who", ""), entry.fields.get("why", ""))
    return f"The operations log names it last in the action {action}, {ago} {who}."


def _lost(snapshot: Snapshot, sighting: Sighting, name: str) -> Cause:
    scores, record = sighting.scores, sighting.record
    subject = f"Event {quoted(sighting.event_id)}" if name == "It" else name
    if record is not None and not record.damaged and not scores:
        text = f"{subject} is in no index: it is stored as a whole, but no relay finds it."
        return Cause(Situation.LOST, (text, "It is not delivered before a repair puts it back."), (DOCTOR, REPAIR))
    part = "only a part of it is stored" if record is not None else "its id is stored without an event"
    if "lost" in scores:
        found = f", found {snapshot.clock.ago(from_ms(scores['lost']))}"
        text = f"{subject} is lost: {part}{found}."
    else:
        where = next((index for index in scores if index in _HOMES), "")
        text = f"{subject} is lost: {part}" + (f", in the index {where!r}." if where else ", in no index.")
    remedy = (
        "It is not delivered: a repair restores what can be restored. If it does not, put it again from its source or "
        "the archive."
    )
    return Cause(Situation.LOST, (text, remedy), (DOCTOR, REPAIR))


# --- evidence ----------------------------------------------------------------------------------------------------


def event_facts(snapshot: Snapshot, sighting: Sighting, *, as_head: bool = False) -> dict[str, Any]:
    """The facts that the sentences are made from. Times are those of the store's clock."""
    record, line = sighting.record, sighting.line
    facts: dict[str, Any] = {
        "event_id": sighting.event_id,
        "indexes": {index: from_ms(score) for index, score in sighting.scores.items()},
    }
    if record is not None:
        names = (
            "state", "phase", "attempts", "expiries", "last_error", "created_at", "available_at", "claimed_by",
            "claimed_at", "lease_until", "published_at", "published_by", "died_at", "superseded_by", "problem",
        )  # fmt: skip
        facts |= {name: getattr(record, name) for name in names if getattr(record, name) is not None}
        holder = snapshot.relay(record.claimed_by)
        if holder is not None:
            facts["relay"] = relay_facts(holder)
    if record is not None and record.phase is Phase.AVAILABLE:
        facts |= {"before": sighting.before, "relays_alive": len(snapshot.alive), "box_paused": snapshot.stats.paused}
    if line is not None:
        facts["line"] = {"key": line.key, "length": line.length, "rank": line.rank, "head": line.head}
        head = snapshot.head_of(line)
        if head is not None and head.event_id != sighting.event_id and not as_head:
            situation = cause_of(snapshot, head, as_head=True).situation
            facts["head"] = {"situation": situation, **event_facts(snapshot, head, as_head=True)}
    if snapshot.log:
        facts["log"] = [{"at": from_ms(entry.at), **entry.fields} for entry in snapshot.log]
    return facts
