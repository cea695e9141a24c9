"""Actions on one event. Each is recorded in the operations log with who, when and why."""

from __future__ import annotations

from typing import Any, Final

from litestar.di import NamedDependency
from litestar.params import JSONBody

from redbox.box import Box
from redbox.events import Outcome
from redbox.service.boxes import Boxes
from redbox.service.operations.documents import DelayedAction, EventAction, EventOutcome, Rescheduling
from redbox.service.operations.filters import duration, moment_of
from redbox.service.operations.routes import BoxName, EventId, post
from redbox.service.problems import ActionRefused, NotFound
from redbox.service.strict import path_text

_BASE: Final = "/v1/boxes/{box:str}/events/{event_id:str}"


@post(f"{_BASE}/kill", status_code=200, summary="Mark an event DEAD")
async def kill_event(
    boxes: NamedDependency[Boxes],
    operator: NamedDependency[str],
    box: BoxName,
    event_id: EventId,
    data: JSONBody[EventAction],
) -> EventOutcome:
    """For a PENDING or CLAIMED event: it is not delivered. A relay that holds it can no longer settle it."""
    return await _act("kill", await boxes.get(box), event_id, data, operator)


@post(f"{_BASE}/release", status_code=200, summary="Return a claimed event to PENDING")
async def release_event(
    boxes: NamedDependency[Boxes],
    operator: NamedDependency[str],
    box: BoxName,
    event_id: EventId,
    data: JSONBody[DelayedAction],
) -> EventOutcome:
    """For a CLAIMED event, such as that of a relay that hangs. It may be delivered twice."""
    return await _act("release", await boxes.get(box), event_id, data, operator)


@post(f"{_BASE}/reschedule", status_code=200, summary="Change when an event is due")
async def reschedule_event(
    boxes: NamedDependency[Boxes],
    operator: NamedDependency[str],
    box: BoxName,
    event_id: EventId,
    data: JSONBody[Rescheduling],
) -> EventOutcome:
    """For a PENDING event; by default it is due now."""
    return await _act("reschedule", await boxes.get(box), event_id, data, operator)


@post(f"{_BASE}/drop", status_code=200, summary="Remove an event for good")
async def drop_event(
    boxes: NamedDependency[Boxes],
    operator: NamedDependency[str],
    box: BoxName,
    event_id: EventId,
    data: JSONBody[EventAction],
) -> EventOutcome:
    """For a PUBLISHED or DEAD event. It cannot be restored."""
    return await _act("drop", await boxes.get(box), event_id, data, operator)


@post(f"{_BASE}/replay", status_code=200, summary="Deliver an event again")
async def replay_event(
    boxes: NamedDependency[Boxes],
    operator: NamedDependency[str],
    box: BoxName,
    event_id: EventId,
    data: JSONBody[DelayedAction],
) -> EventOutcome:
    """For a PUBLISHED or DEAD event: it becomes PENDING."""
    where, known = await boxes.get(box), path_text(event_id)
    delay = duration("delay", data.delay)
    report = await where.replay([known], delay=delay, dry_run=data.dry_run, who=operator, why=data.why)
    _, outcome, detail = report.refused[0] if report.refused else (known, Outcome.OK, "")
    return _answer(outcome, known, data.dry_run, detail)


async def _act(action: str, box: Box, event_id: str, data: EventAction, who: str) -> EventOutcome:
    known, when = path_text(event_id), dict[str, Any]()
    if isinstance(data, DelayedAction):
        when["delay"] = duration("delay", data.delay)
    if isinstance(data, Rescheduling):
        when["available_at"] = await moment_of(box, "available_at", data.available_at)
    (outcome,) = await getattr(box.operate, action)([known], who=who, why=data.why, dry_run=data.dry_run, **when)
    return _answer(outcome, known, data.dry_run)


def _answer(outcome: Outcome, event_id: str, dry_run: bool, detail: str = "") -> EventOutcome:
    reason = f"{outcome.reason}: {detail}" if detail else outcome.reason
    if not dry_run and outcome is Outcome.UNKNOWN:
        raise NotFound(f"event {event_id}: {reason}")
    if not dry_run and outcome is not Outcome.OK:
        raise ActionRefused(event_id, outcome, reason)
    return EventOutcome(outcome=outcome.value, reason=reason)


HANDLERS: Final = [kill_event, release_event, reschedule_event, drop_event, replay_event]
