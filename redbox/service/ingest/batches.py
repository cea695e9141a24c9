"""Stores a batch of events, with a result for each."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final, Literal

import msgspec

from redbox.box import Box
from redbox.errors import PayloadTooLarge, RedboxError, StoreError
from redbox.events import Event, Receipt
from redbox.service.ingest.reading import Line, ReadLine, numbered_key
from redbox.service.problems import AGAIN, Problem, problem_of

#: Events that are read and stored together. Between them other requests get their turn.
SLICE: Final = 250
_REFUSALS: Final = {
    "conflict": (HTTPStatus.CONFLICT, "Conflict"),
    "id_reused": (HTTPStatus.CONFLICT, "IdReused"),
    "box_full": (HTTPStatus.TOO_MANY_REQUESTS, "BoxFull"),
}


class EventResult(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """What happened to one event of a batch. `event_id` is absent if the event was not readable."""

    status: Literal["accepted", "repeated", "refused"]
    event_id: str | None = None
    problem: Problem | None = None


class BatchReceipt(msgspec.Struct, kw_only=True, frozen=True):
    """The results of a batch, in its order, and how many there are of each kind."""

    accepted: int
    repeated: int
    refused: int
    durability: str | None
    results: list[EventResult]

    @property
    def worth_repeating(self) -> bool:
        """Whether a refused event may be accepted later."""
        return any(result.problem is not None and result.problem.status in AGAIN for result in self.results)


class BatchProblem(Problem, kw_only=True, omit_defaults=True):
    """The problem of a batch of which no event was stored, all for the same reason."""

    results: list[EventResult]


async def put_batch(
    box: Box, lines: list[Line], read: ReadLine, key: str | None, durability: str | None
) -> BatchReceipt | BatchProblem:
    """Stores the events that can be stored. Raises UsageError if the durability is not valid."""
    results: list[EventResult] = []
    level: str | None = None
    failure: Problem | None = None
    for start in range(0, max(1, len(lines)), SLICE):
        part = lines[start : start + SLICE]
        if failure is not None:
            results += [EventResult(status="refused", problem=failure)] * len(part)
            continue
        read_part = [_read(line, read, numbered_key(key, start + at)) for at, line in enumerate(part)]
        events = [event for event in read_part if isinstance(event, Event)]
        receipts, failure = await _put(box, events, durability)
        given = iter(receipts)
        for each in read_part:
            found = next(given) if isinstance(each, Event) else each
            if isinstance(found, Receipt):
                level = found.durability
                found = _result(found)
            results.append(found)
    return _answer(results, level)


def _read(line: Line, read: ReadLine, default_id: str | None) -> Event | EventResult:
    try:
        return read(line, default_id)
    except RedboxError as error:
        return EventResult(status="refused", problem=problem_of(error))


async def _put(
    box: Box, events: list[Event], durability: str | None
) -> tuple[list[Receipt | EventResult], Problem | None]:
    """A receipt or a result for each event, and the problem of the store if it failed."""
    try:
        return list(await box.put_many(events, on_conflict="skip", durability=durability)), None
    except PayloadTooLarge:  # for this box, and nothing was put
        return await _put_each(box, events, durability)
    except StoreError as error:
        done: list[Receipt | EventResult] = list(error.receipts)
        problem = problem_of(error)
        done += [
            EventResult(status="refused", event_id=event.event_id, problem=problem) for event in events[len(done) :]
        ]
        return done, problem


async def _put_each(
    box: Box, events: list[Event], durability: str | None
) -> tuple[list[Receipt | EventResult], Problem | None]:
    done: list[Receipt | EventResult] = []
    failure: Problem | None = None
    for event in events:
        try:
            if failure is None:
                done.append(await box.put(event, durability=durability))
                continue
            problem = failure
        except RedboxError as error:
            problem = problem_of(error)
            failure = problem if isinstance(error, StoreError) else None
        done.append(EventResult(status="refused", event_id=event.event_id, problem=problem))
    return done, failure


def _result(receipt: Receipt) -> EventResult:
    if receipt.refused is None:
        return EventResult(status="accepted" if receipt.created else "repeated", event_id=receipt.event_id)
    status, error = _REFUSALS.get(receipt.refused, (HTTPStatus.CONFLICT, "Refused"))
    problem = Problem(title=status.phrase, status=status, detail=receipt.reason or "", error=error)
    return EventResult(status="refused", event_id=receipt.event_id, problem=problem)


def _answer(results: list[EventResult], level: str | None) -> BatchReceipt | BatchProblem:
    problems = [result.problem for result in results if result.problem is not None]
    if problems and len(problems) == len(results) and len({problem.status for problem in problems}) == 1:
        first = problems[0]
        return BatchProblem(
            title=first.title, status=first.status, error=first.error, results=results,
            detail=f"no event was stored; the first was refused because: {first.detail}",
        )  # fmt: skip
    kinds = [result.status for result in results]
    return BatchReceipt(
        accepted=kinds.count("accepted"),
        repeated=kinds.count("repeated"),
        refused=kinds.count("refused"),
        durability=level,
        results=results,
    )
