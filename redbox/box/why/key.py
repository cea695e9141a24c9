"""Explains a line by its head, and a unique key by its holder."""

from __future__ import annotations

from redbox.box.why.event import cause_of, event_facts
from redbox.box.why.explanation import Explanation, Situation, Step
from redbox.box.why.snapshot import Snapshot
from redbox.box.why.words import many, quoted, wait


def explain_line(snapshot: Snapshot, ordering_key: str) -> Explanation:
    """The length of the line, its head, and why the head waits."""
    located = snapshot.located
    subject = f"ordering key {quoted(ordering_key)!r}"
    if not located.members:
        text = f"No event of {subject} is pending, claimed or blocking: its line is empty."
        return Explanation(
            subject=subject,
            situation=Situation.EMPTY,
            at=snapshot.clock.now,
            sentences=(text,),
            next_steps=(Step("list its published and dead events", ("list", f"--key={ordering_key}")),),
            evidence={"length": 0},
        )
    head = located.sightings[0]
    cause = cause_of(snapshot, head, f"Event {quoted(head.event_id)}")
    behind = located.members - 1
    behind_it = f"{wait(behind) if behind else 'no event waits'} behind it"
    first = f"The head of its line is event {quoted(head.event_id)}, and {behind_it}."
    return Explanation(
        subject=subject,
        situation=cause.situation,
        at=snapshot.clock.now,
        sentences=(first, *cause.sentences),
        next_steps=cause.steps,
        evidence={"length": located.members, "head": event_facts(snapshot, head)},
    )


def explain_unique(snapshot: Snapshot, unique_key: str) -> Explanation:
    """Which live event holds the key, and why it is still live."""
    located = snapshot.located
    subject = f"unique key {quoted(unique_key)!r}"
    holders = [each for each in located.sightings if _holds(each.record, unique_key)]
    if not holders:
        return Explanation(
            subject=subject,
            situation=Situation.EMPTY,
            at=snapshot.clock.now,
            sentences=("No live event holds it: the next put with this key is accepted.",),
            evidence={"holders": 0},
        )
    holder = holders[0]
    assert holder.record is not None
    cause = cause_of(snapshot, holder, f"Event {quoted(holder.event_id)}")
    scope = holder.record.event.unique_scope
    others = located.members - 1
    more = f", and {many(others, 'other live event', 'has', 'have')} it too" if others else ""
    held = f"Event {quoted(holder.event_id)} holds it with the scope {scope}{more}"
    text = f"{held}: a key is free when its event is PUBLISHED or DEAD."
    return Explanation(
        subject=subject,
        situation=cause.situation,
        at=snapshot.clock.now,
        sentences=(text, *cause.sentences),
        next_steps=cause.steps,
        evidence={"holders": located.members, "holder": event_facts(snapshot, holder)},
    )


def _holds(record: object, unique_key: str) -> bool:
    event = getattr(record, "event", None)
    return event is not None and event.unique_key == unique_key
