"""Stores a batch of events, with a result for each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from http import HTTPStatus
from typing import Final, Literal

import msgspec

from redbox import errors
from redbox.arguments import counted
from redbox.box import Box
from redbox.errors import Effect, PayloadTooLarge, RedboxError, StoreError
from redbox.events import Event, Receipt
from redbox.service.http.problems import RETRY_SECONDS, Problem, problem_of
from redbox.service.ingest.reading import EventText, ReadText, numbered_key

#: Events that are read and stored together, and their bytes. Between them other requests get their turn.
SLICE: Final = 250
SLICE_BYTES: Final = 1024 * 1024
_REFUSALS: Final = {
    "conflict": (HTTPStatus.CONFLICT, "Conflict"),
    "id_reused": (HTTPStatus.CONFLICT, "IdReused"),
    "box_full": (HTTPStatus.TOO_MANY_REQUESTS, "BoxFull"),
}
#: After these errors of the store, nothing of the call is stored: by what the error says, or by its class.
_NOTHING_STORED: Final = frozenset({
    Effect.NOTHING_CHANGED, Effect.NOTHING_WRITTEN, Effect.NOTHING_ELSE_CHANGED, Effect.NOTHING_ELSE_WRITTEN,
})  # fmt: skip
_CHECKED_FIRST: Final = (
    errors.DurabilityUnsupported, errors.ForeignKey, errors.NewerEvent, errors.NewerLayout, errors.UntrustedStore,
)  # fmt: skip


class EventResult(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """What happened to one event of a batch. `unknown`: the store failed, and the event may be stored or not.
    `event_id` is absent if the event was not readable."""

    status: Literal["accepted", "repeated", "refused", "unknown"]
    event_id: str | None = None
    problem: Problem | None = None


class BatchReceipt(msgspec.Struct, kw_only=True, frozen=True):
    """The results of a batch, in its order, and how many there are of each kind."""

    accepted: int
    repeated: int
    refused: int
    unknown: int
    durability: str | None
    results: list[EventResult]

    @property
    def is_complete(self) -> bool:
        """Whether all events are stored."""
        return not self.refused and not self.unknown

    @property
    def retry_after(self) -> int | None:
        """Seconds after which the batch is worth repeating, if some event may be accepted then."""
        return _retry_after([result.problem for result in self.results if result.problem is not None])


class BatchProblem(Problem, kw_only=True, omit_defaults=True):
    """The problem of a batch of which no event was acknowledged, all with the same status."""

    results: list[EventResult]


async def put_batch(
    box: Box, texts: list[EventText], read: ReadText, key: str | None, durability: str | None
) -> BatchReceipt | BatchProblem:
    """Stores the events that can be stored. Raises UsageError if the durability is not valid."""
    results: list[EventResult] = []
    receipts: list[Receipt | EventResult]
    level: str | None = None
    failure: Problem | None = None
    for start, part in _slices(texts):
        read_part = [_read(text, read, numbered_key(key, start + at)) for at, text in enumerate(part)]
        events = [event for event in read_part if isinstance(event, Event)]
        if failure is None:
            receipts, failure = await _put(box, events, durability)
        else:
            receipts = [_not_sent(event, failure) for event in events]
            await asyncio.sleep(0)
        given = iter(receipts)
        for each in read_part:
            found = next(given) if isinstance(each, Event) else each
            if isinstance(found, Receipt):
                level = found.durability
                found = _result(found)
            results.append(found)
    return _answer(results, level)


def _slices(texts: list[EventText]) -> Iterator[tuple[int, list[EventText]]]:
    """Parts of a batch, each with the number of its first event. A batch without events has one, without events."""
    start, size = 0, 0
    for at, text in enumerate(texts):
        if at > start and (at - start == SLICE or size + len(text) > SLICE_BYTES):
            yield start, texts[start:at]
            start, size = at, 0
        size += len(text)
    yield start, texts[start:]


def _read(text: EventText, read: ReadText, default_id: str | None) -> Event | EventResult:
    try:
        return read(text, default_id)
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
        return [*done, *(_failed(event, error) for event in events[len(done) :])], problem_of(error)


async def _put_each(
    box: Box, events: list[Event], durability: str | None
) -> tuple[list[Receipt | EventResult], Problem | None]:
    done: list[Receipt | EventResult] = []
    failure: Problem | None = None
    for event in events:
        if failure is not None:
            done.append(_not_sent(event, failure))
            continue
        try:
            done.append(await box.put(event, durability=durability))
        except RedboxError as error:
            done.append(_failed(event, error))
            failure = problem_of(error) if isinstance(error, StoreError) else None
    return done, failure


def _failed(event: Event, error: RedboxError) -> EventResult:
    problem = problem_of(error)
    problem.event_id = event.event_id
    status: Literal["refused", "unknown"] = "unknown" if _may_be_stored(error) else "refused"
    return EventResult(status=status, event_id=event.event_id, problem=problem)


def _may_be_stored(error: RedboxError) -> bool:
    if not isinstance(error, StoreError) or isinstance(error, _CHECKED_FIRST):
        return False
    return error.effect not in _NOTHING_STORED


def _not_sent(event: Event, failure: Problem) -> EventResult:
    """The result of an event after one for which the store failed."""
    problem = Problem(
        title=failure.title, status=failure.status, error=failure.error, event_id=event.event_id,
        detail="not sent to the store, which had failed for an event before it", retry_after=failure.retry_after,
    )  # fmt: skip
    return EventResult(status="refused", event_id=event.event_id, problem=problem)


def _result(receipt: Receipt) -> EventResult:
    if receipt.refused is None:
        return EventResult(status="accepted" if receipt.created else "repeated", event_id=receipt.event_id)
    status, error = _REFUSALS.get(receipt.refused, (HTTPStatus.CONFLICT, "Refused"))
    problem = Problem(
        title=status.phrase, status=status, detail=receipt.reason or "", error=error, event_id=receipt.event_id,
        retry_after=RETRY_SECONDS if status is HTTPStatus.TOO_MANY_REQUESTS else None,
    )  # fmt: skip
    return EventResult(status="refused", event_id=receipt.event_id, problem=problem)


def _answer(results: list[EventResult], level: str | None) -> BatchReceipt | BatchProblem:
    problems = [result.problem for result in results if result.problem is not None]
    kinds = [result.status for result in results]
    unknown = kinds.count("unknown")
    if problems and len(problems) == len(results) and len({problem.status for problem in problems}) == 1:
        first = problems[kinds.index("unknown") if unknown else 0]
        what = (
            f"{counted(unknown, 'event')} may be stored or not; repeat the request under the same ids; the store failed"
            if unknown
            else "no event was stored; the first was refused"
        )
        return BatchProblem(
            title=first.title, status=first.status, error=first.error, results=results,
            detail=f"{what}, because: {first.detail}", retry_after=_retry_after(problems),
        )  # fmt: skip
    return BatchReceipt(
        accepted=kinds.count("accepted"),
        repeated=kinds.count("repeated"),
        refused=kinds.count("refused"),
        unknown=unknown,
        durability=level,
        results=results,
    )


def _retry_after(problems: list[Problem]) -> int | None:
    return max((problem.retry_after for problem in problems if problem.retry_after is not None), default=None)
