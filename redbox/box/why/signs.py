"""Signs of trouble in a box, which are its cause or remarks beside another one."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from redbox.arguments import counted
from redbox.box.reports import RelayReport
from redbox.box.why.event import SUSPECT_FROM, crashed_alone, expired_leases
from redbox.box.why.explanation import Cause, Situation, Step, by_id
from redbox.box.why.obstacles import MISSED_BEAT, start_relay
from redbox.box.why.snapshot import Snapshot
from redbox.box.why.words import are, many, quoted
from redbox.durations import format_duration
from redbox.events import Phase
from redbox.store.scripts.replies import Sighting

SEE_CLAIMED: Final = Step("see which events are in flight, and for how long", ("list", "--state", "claimed"))
SEE_BOXES: Final = Step("see what the other boxes hold", ("boxes",))
SEE_ERRORS: Final = Step("see why they died", ("dead", "list", "--by-error"))


def first_claimed(snapshot: Snapshot) -> Sighting | None:
    """The event whose lease ends first."""
    claimed = [each for each in snapshot.located.sightings if "claimed" in each.scores]
    return min(claimed, key=lambda each: each.scores["claimed"], default=None)


def blocking_head(snapshot: Snapshot) -> Sighting | None:
    """The DEAD event whose line has been blocked for longest."""
    for each in snapshot.located.sightings:
        if "dead" in each.scores and each.line is not None and each.line.rank == 0:
            return each
    return None


def dead_events(snapshot: Snapshot) -> str:
    """`5 events are DEAD, the oldest for 3 min`."""
    stats = snapshot.stats
    oldest = f", the oldest for {format_duration(stats.oldest_dead)}" if stats.oldest_dead else ""
    return f"{are(stats.phases[Phase.DEAD])} DEAD{oldest}"


def find_crashing(snapshot: Snapshot) -> Cause | None:
    """An event that probably crashes each relay that claims it; or those among which it is."""
    suspects = [each for each in snapshot.located.sightings if _expiries(each) >= SUSPECT_FROM]
    if not suspects:
        return None
    # Of equal ones, the one that is claimed: it is claimed alone.
    worst = max(suspects, key=lambda each: (_expiries(each), "claimed" in each.scores))
    others = snapshot.stats.suspects - ("suspect" in worst.scores)
    assert worst.record is not None
    if not crashed_alone(worst.record, snapshot.clock.now):
        return _one_may_crash(snapshot, worst, others)
    count, claimed_by = expired_leases(worst.record, snapshot.clock.now), quoted(worst.record.claimed_by or "unknown")
    died = f"{count:,} relays that died ({count:,} expired leases in a row), by the last one alone"
    held = f"Event {quoted(worst.event_id)} was held by {died}"
    sentences = [f"{held}: when a relay claims it, the next crash is likely."]
    if "claimed" in worst.scores:
        sentences = [f"{held}, and is claimed by relay {claimed_by}: the next crash is likely."]
    if others:
        too = f"{many(others, 'other event', 'is a suspect', 'are suspects')} too, and probably innocent"
        sentences.append(f"{too}: a relay that dies holds many events. Suspects are claimed alone, to tell them apart.")
    steps = (
        by_id("mark it DEAD, so that no relay claims it", "kill", event_id=worst.event_id),
        by_id("see what is known about it", "why", event_id=worst.event_id),
    )
    return Cause(Situation.SUSPECT, tuple(sentences), steps)


def _one_may_crash(snapshot: Snapshot, worst: Sighting, others: int) -> Cause:
    """Suspects that share their history: to kill one of them would probably kill an innocent one."""
    record, event = worst.record, quoted(worst.event_id)
    died = f"held by {SUSPECT_FROM} relays that died ({SUSPECT_FROM} expired leases in a row)"
    first = f"Event {event} was {died}: it may crash relays, or was only held together with the event that does."
    if others:
        which = "one of them may crash relays, and the others were only held together with it"
        first = f"{counted(others + 1, 'event')}, such as {event}, were {died}: {which}."
    after = "To tell, relays claim a suspect alone: if another relay dies with one, that one is the cause."
    sentences = [first, after]
    if "claimed" in worst.scores and record is not None:
        sentences.append(f"Relay {quoted(record.claimed_by or 'unknown')} has claimed event {event} in this way.")
    see = by_id("see what is known about it", "why", event_id=worst.event_id)
    return Cause(Situation.SUSPECT, tuple(sentences), (see,) if snapshot.alive else (start_relay(snapshot), see))


def _expiries(sighting: Sighting) -> int:
    """Expired leases in a row of an event that relays claim or hold."""
    record = sighting.record
    return record.expiries if record is not None and sighting.scores.keys() & {"claimed", "suspect"} else 0


def silent_holder(snapshot: Snapshot) -> str | None:
    """The silent relay that holds the claim whose lease ends first, if that has not ended."""
    stats, first = snapshot.stats, first_claimed(snapshot)
    holder = None if first is None or first.record is None else snapshot.relay(first.record.claimed_by)
    ends = stats.first_lease_ends
    if holder is None or holder.seen <= MISSED_BEAT or ends is None or ends <= timedelta(0):
        return None
    count = max(1, stats.phases[Phase.IN_FLIGHT] - sum(relay.in_flight for relay in fresh_relays(snapshot)))
    silent = f"Relay {quoted(holder.name)} has been silent for {format_duration(holder.seen)}"
    when = f"they return to PENDING when their leases end, the first in {format_duration(ends)}"
    if count == 1:
        return f"{silent}, and holds 1 event: it returns to PENDING when its lease ends, in {format_duration(ends)}."
    return f"{silent}, and holds up to {counted(count, 'event')}: {when}."


def fresh_relays(snapshot: Snapshot) -> list[RelayReport]:
    """The relays that have missed no heartbeat."""
    return [relay for relay in snapshot.alive if relay.seen <= MISSED_BEAT]


def lost_sentences(snapshot: Snapshot) -> tuple[str, ...]:
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
    if some := snapshot.incomplete:
        named = ", ".join(quoted(each) for each in some[:3]) + (", ..." if len(some) > 3 else "")
        what = f"{many(len(some), 'pending event', 'is', 'are')} stored in part, and cannot be delivered"
        sentences.append(f"At least {what}: {named}.")
    return tuple(sentences)
