"""Remarks beside the cause of a box: what is wrong, but does not keep other events from flowing."""

from __future__ import annotations

from collections.abc import Iterator

from redbox.box.why.event import DOCTOR, REPAIR
from redbox.box.why.explanation import Cause, Remark, Situation, Step, by_id
from redbox.box.why.obstacles import (
    SEE_RELAYS,
    find_obstacle,
    hanging_sentence,
    no_relay_sentence,
    open_breaker_sentence,
    start_relay,
)
from redbox.box.why.signs import (
    SEE_BOXES,
    SEE_CLAIMED,
    SEE_ERRORS,
    blocking_head,
    dead_events,
    find_crashing,
    lost_sentences,
    silent_holder,
)
from redbox.box.why.snapshot import Snapshot
from redbox.box.why.words import are, because, many, quoted, wait
from redbox.events import Phase


def remarks(snapshot: Snapshot, cause: Cause) -> Remark:
    """All remarks as one, without the steps of the cause."""
    found = [each for find in (_stops, _events, _relays, _damage) for each in find(snapshot, cause)]
    steps = dict.fromkeys(step for each in found for step in each.steps if step not in cause.steps)
    texts = [text for each in found for text in each.sentences]
    if texts:
        texts[0] = f"Besides, {texts[0][0].lower()}{texts[0][1:]}"
    return Remark(tuple(texts), tuple(steps))


def _stops(snapshot: Snapshot, cause: Cause) -> Iterator[Remark]:
    """A pause beside a server that refuses writes, and no relay beside a pause."""
    if cause.situation is Situation.PAUSED and not snapshot.alive:
        yield Remark((no_relay_sentence(snapshot),), (start_relay(snapshot),))
    if snapshot.stats.paused and cause.situation is not Situation.PAUSED:
        pause = find_obstacle(snapshot)
        assert pause is not None
        yield Remark(pause.sentences, pause.steps)


def _events(snapshot: Snapshot, cause: Cause) -> Iterator[Remark]:
    """DEAD events, the lines that they block, and paused ordering keys."""
    stats = snapshot.stats
    # The cause of a blocked line names one of them, and that of events that die all of them.
    if stats.phases[Phase.DEAD] > (cause.situation is Situation.BLOCKED) and SEE_ERRORS not in cause.steps:
        yield Remark((f"{dead_events(snapshot)}.",), (SEE_ERRORS,))
    head = blocking_head(snapshot)
    if head is not None and cause.situation is not Situation.BLOCKED:
        first = by_id("see the first of these events", "why", event_id=head.event_id)
        yield Remark((f"{are(stats.blocked, 'ordering key')} blocked by a DEAD event.",), (first,))
    if snapshot.first_paused and cause.situation is not Situation.KEY_PAUSED:
        yield _paused_keys(snapshot)


def _paused_keys(snapshot: Snapshot) -> Remark:
    count, known = snapshot.stats.paused_keys, snapshot.first_paused
    which = ", ".join(f"{quoted(key)!r} {because(pause.who, pause.why)}" for key, pause in known)
    more = count > len(known)
    text = f"{are(count, 'ordering key')} paused{', such as' if more else ':'} {which}."
    if behind := snapshot.behind_paused:
        least = "at least " if more else ""
        them = "it" if count == 1 else "them"
        names = ", ".join(f"{quoted(key)!r}, paused {because(pause.who, pause.why)}" for key, pause in known)
        such = "Some are" if more else "It is" if count == 1 else "They are"
        text = f"{are(count, 'ordering key')} paused; {least}{wait(behind)} for {them}. {such} {names}."
    steps = [Step(f"let relays claim the events of {quoted(key)!r}", ("resume", f"--key={key}")) for key, _ in known]
    return Remark((text,), (*steps, *((Step("see the number of paused keys", ("stats",)),) if more else ())))


def _relays(snapshot: Snapshot, cause: Cause) -> Iterator[Remark]:
    """Open breakers, calls that hang, relays that have probably died, and the event that crashes them."""
    sick = None if cause.situation is Situation.BREAKER_OPEN else open_breaker_sentence(snapshot)
    for text in (sick, hanging_sentence(snapshot.alive)):
        if text is not None:
            yield Remark((text,), (SEE_RELAYS,))
    silent = silent_holder(snapshot)
    if silent is not None and silent not in cause.sentences and snapshot.alive:
        yield Remark((silent,), (SEE_CLAIMED,))
    crashing = None if cause.situation is Situation.SUSPECT else find_crashing(snapshot)
    if crashing is not None:
        yield Remark(crashing.sentences, crashing.steps)


def _damage(snapshot: Snapshot, cause: Cause) -> Iterator[Remark]:
    """Lost events, events in no index, and a server that evicts keys or is nearly full."""
    if cause.situation is not Situation.LOST and (found := lost_sentences(snapshot)):
        yield Remark(found, (DOCTOR, REPAIR))
    server, unseen = snapshot.server, snapshot.unindexed
    policy = "" if server is None else server.setting("maxmemory-policy") or ""
    if server is not None and server.limit and policy.startswith("allkeys"):
        when = f"when it is full (maxmemory-policy {quoted(policy)})"
        yield Remark((f"The server evicts keys {when}, and events with them.",), (DOCTOR,))
    if server is not None and server.nearly_full:
        text = f"The server is nearly full: it uses {server.memory}. A put that needs more than is left is refused."
        yield Remark((text,), (SEE_BOXES,))
    if unseen is not None and not unseen.found and not unseen.complete and not snapshot.stats.unreadable:
        stored = f"{many(unseen.missing, 'event', 'was', 'were')} put, but {'is' if unseen.missing == 1 else 'are'}"
        text = f"By the totals, {stored} neither in an index nor removed: the box may be damaged."
        yield Remark((text,), (Step("look for events that are in no index", ("doctor", "--full")),))
