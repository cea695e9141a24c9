"""Actions on one event. Each is recorded in the operations log with who, when and why."""

from __future__ import annotations

from typing import Any, Final

from litestar.di import NamedDependency, Provide
from litestar.params import JSONBody

from redbox.box import Box
from redbox.events import Outcome
from redbox.service.boxes import Boxes
from redbox.service.http.problems import ActionRefused, NotFound
from redbox.service.http.strict import path_text
from redbox.service.operations.documents import DelayedAction, EventAction, EventOutcome, Rescheduling
from redbox.service.operations.filters import duration, moment_of
from redbox.service.operations.routes import BoxName, Decorator, EventId, post


class ChosenEvent:
    """The event of a request, and who acts on it."""

    def __init__(self, box: Box, event_id: str, operator: str) -> None:
        self._box = box
        self._id = event_id
        self._operator = operator

    async def act(self, action: str, data: EventAction) -> EventOutcome:
        """Calls the operation of this name. Raises NotFound or ActionRefused, unless it is a dry run."""
        when: dict[str, Any] = {}
        if isinstance(data, DelayedAction):
            when["delay"] = duration("delay", data.delay)
        if isinstance(data, Rescheduling):
            when["available_at"] = await moment_of(self._box, "available_at", data.available_at)
        options = {"who": self._operator, "why": data.why, "dry_run": data.dry_run, **when}
        if action == "replay":
            report = await self._box.replay([self._id], **options)
            _, outcome, detail = report.refused[0] if report.refused else (self._id, Outcome.OK, "")
            return _answer(outcome, self._id, data.dry_run, detail)
        (outcome,) = await getattr(self._box.operate, action)([self._id], **options)
        return _answer(outcome, self._id, data.dry_run)


async def provide_event(
    boxes: NamedDependency[Boxes], operator: NamedDependency[str], box: BoxName, event_id: EventId
) -> ChosenEvent:
    """The event that the path names, the dependency `event`. It need not exist."""
    return ChosenEvent(await boxes.get(box), path_text(event_id), operator)


def _post(action: str, summary: str) -> Decorator:
    path = f"/v1/boxes/{{box:str}}/events/{{event_id:str}}/{action}"
    return post(path, status_code=200, summary=summary, dependencies={"event": Provide(provide_event)})


@_post("kill", "Mark an event DEAD")
async def kill_event(event: NamedDependency[ChosenEvent], data: JSONBody[EventAction]) -> EventOutcome:
    """For a PENDING or CLAIMED event: it is not delivered. A relay that holds it can no longer settle it."""
    return await event.act("kill", data)


@_post("release", "Return a claimed event to PENDING")
async def release_event(event: NamedDependency[ChosenEvent], data: JSONBody[DelayedAction]) -> EventOutcome:
    """For a CLAIMED event, such as that of a relay that hangs. It may be delivered twice."""
    return await event.act("release", data)


@_post("reschedule", "Change when an event is due")
async def reschedule_event(event: NamedDependency[ChosenEvent], data: JSONBody[Rescheduling]) -> EventOutcome:
    """For a PENDING event; by default it is due now."""
    return await event.act("reschedule", data)


@_post("drop", "Remove an event for good")
async def drop_event(event: NamedDependency[ChosenEvent], data: JSONBody[EventAction]) -> EventOutcome:
    """For a PUBLISHED or DEAD event. It cannot be restored."""
    return await event.act("drop", data)


@_post("replay", "Deliver an event again")
async def replay_event(event: NamedDependency[ChosenEvent], data: JSONBody[DelayedAction]) -> EventOutcome:
    """For a PUBLISHED or DEAD event: it becomes PENDING."""
    return await event.act("replay", data)


def _answer(outcome: Outcome, event_id: str, dry_run: bool, detail: str = "") -> EventOutcome:
    reason = f"{outcome.reason}: {detail}" if detail else outcome.reason
    if not dry_run and outcome is Outcome.UNKNOWN:
        raise NotFound(f"event {event_id}: {reason}")
    if not dry_run and outcome is not Outcome.OK:
        raise ActionRefused(event_id, outcome, reason)
    return EventOutcome(outcome=outcome.value, reason=reason)


HANDLERS: Final = [kill_event, release_event, reschedule_event, drop_event, replay_event]
