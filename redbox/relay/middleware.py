"""Middleware: async functions around each publish to the main target, for metrics, tracing and headers.

    async def timed(claim: Claim, publish: Publish) -> None:
        started = time.monotonic()
        try:
            await publish(claim.with_headers({"x-region": "eu"}))
        finally:
            seconds.observe(time.monotonic() - started)

    Relay(box, target, middleware=[timed])

The first of the list is the outermost. A middleware calls `publish` once and waits for it. It may pass on a claim with
other headers, and may raise instead, as a publisher does. It cannot make a failed publish a success, nor skip it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from redbox.errors import NotPublished, UsageError
from redbox.events import Claim, Event, check_new_headers
from redbox.publishers.base import Publisher, PublisherAround

Publish = Callable[[Claim], Awaitable[None]]
Middleware = Callable[[Claim, Publish], Awaitable[None]]

_SAME: Final = tuple(name for name in Claim.__struct_fields__ if name != "event")
_SAME_IN_EVENT: Final = tuple(name for name in Event.__struct_fields__ if name != "headers")


def with_middleware(publisher: Publisher, middleware: Sequence[Middleware]) -> Publisher:
    """The publisher inside the middleware; the publisher itself if there is none."""
    return MiddlewarePublisher(publisher, middleware) if middleware else publisher


def check_middleware(middleware: Any) -> tuple[Middleware, ...]:
    """Refuses middleware that could not be called."""
    if isinstance(middleware, str) or not isinstance(middleware, Sequence):
        raise UsageError("middleware must be a list of async functions of (claim, publish)")
    for each in middleware:
        if not callable(each) or not (
            inspect.iscoroutinefunction(each) or inspect.iscoroutinefunction(type(each).__call__)
        ):
            raise UsageError(f"{_name(each)} is not an async function; a middleware is: async def f(claim, publish)")
        try:
            inspect.signature(each).bind(None, None)
        except TypeError:
            raise UsageError(f"{_name(each)} must take (claim, publish), not {inspect.signature(each)}") from None
    return tuple(middleware)


class MiddlewarePublisher(PublisherAround):
    """Another publisher inside middleware. Batches stay batches: the middleware of all events of a call run
    concurrently, and the events that they pass on are published in one call."""

    def __init__(self, publisher: Publisher, middleware: Sequence[Middleware]) -> None:
        super().__init__(publisher)
        self._middleware = middleware

    async def publish(self, claim: Claim) -> None:
        await self._through(claim, self._publisher.publish)

    async def publish_many(self, claims: Sequence[Claim]) -> Sequence[BaseException | None]:
        batch = _Batch(len(claims))
        tasks = []
        for claim in claims:
            place = _Place(batch)
            tasks.append(task := asyncio.create_task(self._through(claim, place.publish)))
            task.add_done_callback(place.ended)
        try:
            await batch.complete.wait()
            await batch.send(self._publisher)
            await asyncio.wait(tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            raise
        return [_outcome(task) for task in tasks]

    async def _through(self, claim: Claim, publish: Publish) -> None:
        """Publishes through all middleware."""
        for each in reversed(self._middleware):
            publish = _Step(each, publish)
        await publish(claim)


class _Step:
    """One middleware around the rest."""

    __slots__ = ("_middleware", "_publish")

    def __init__(self, middleware: Middleware, publish: Publish) -> None:
        self._middleware = middleware
        self._publish = publish

    async def __call__(self, claim: Claim) -> None:
        rest = _Rest(self._middleware, self._publish, claim)
        await self._middleware(claim, rest.publish)
        rest.check()


class _Rest:
    """The rest of a publish, as one middleware sees it."""

    __slots__ = ("_called", "_claim", "_ended", "_error", "_middleware", "_publish")

    def __init__(self, middleware: Middleware, publish: Publish, claim: Claim) -> None:
        self._middleware = middleware
        self._publish = publish
        self._claim = claim
        self._called = self._ended = False
        self._error: BaseException | None = None

    async def publish(self, claim: Claim) -> None:
        """Publishes the claim, or the same with other headers; for one call."""
        if self._called:
            raise NotPublished(
                f"the middleware {_name(self._middleware)} called publish twice; each call is an attempt"
            )
        self._called = True
        try:
            if claim is not self._claim:
                self._check_same(claim)
            await self._publish(claim)
        except BaseException as error:
            self._error = error
            raise
        finally:
            self._ended = True

    def check(self) -> None:
        """Raises unless the event was published: a middleware that returns does not decide that."""
        name = _name(self._middleware)
        if not self._called:
            raise NotPublished(
                f"the middleware {name} returned without 'await publish(claim)'; to refuse an event, raise Reject"
            )
        if not self._ended:
            raise NotPublished(f"the middleware {name} did not wait for publish; use 'await publish(claim)'")
        if self._error is not None:
            raise self._error

    def _check_same(self, claim: Any) -> None:
        own, name = self._claim, _name(self._middleware)
        if not isinstance(claim, Claim):
            raise NotPublished(f"the middleware {name} must pass a claim to publish, not {type(claim).__name__}")
        changed = [field for field in _SAME if getattr(claim, field) != getattr(own, field)]
        changed += [field for field in _SAME_IN_EVENT if getattr(claim.event, field) != getattr(own.event, field)]
        if changed:
            raise NotPublished(f"the middleware {name} changed {changed[0]}; only headers may be changed")
        check_new_headers(own.event.headers, claim.event.headers)


class _Batch:
    """Collects what the middleware of several events pass on, until each has done so or has ended."""

    def __init__(self, size: int) -> None:
        self._waiting = size
        self._passed: list[tuple[Claim, asyncio.Future[None]]] = []
        self.complete = asyncio.Event()

    async def publish(self, claim: Claim) -> None:
        outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._passed.append((claim, outcome))
        self.count()
        await outcome

    def count(self) -> None:
        """One more event was passed on, or will not be."""
        self._waiting -= 1
        if self._waiting == 0:
            self.complete.set()

    async def send(self, publisher: Publisher) -> None:
        """Publishes the collected events in one call, and gives each its outcome."""
        self._passed = [each for each in self._passed if not each[1].done()]  # a middleware may have given up
        if not self._passed:
            return
        try:
            outcomes = list(await publisher.publish_many([claim for claim, _ in self._passed]))
            if len(outcomes) != len(self._passed):
                raise NotPublished(f"the publisher returned {len(outcomes)} outcomes for {len(self._passed)} events")
        except Exception as error:
            outcomes = [error] * len(self._passed)
        for (_, waiting), outcome in zip(self._passed, outcomes, strict=True):
            if waiting.done():
                continue
            if outcome is None:
                waiting.set_result(None)
            elif isinstance(outcome, asyncio.CancelledError):
                waiting.cancel()
            else:
                waiting.set_exception(outcome)


class _Place:
    """The place of one event in a batch."""

    __slots__ = ("_batch", "_counted")

    def __init__(self, batch: _Batch) -> None:
        self._batch = batch
        self._counted = False

    async def publish(self, claim: Claim) -> None:
        if self._counted:
            raise NotPublished("publish was called after the middleware had returned")
        self._counted = True
        await self._batch.publish(claim)

    def ended(self, task: asyncio.Task[None]) -> None:
        """The middleware of the event have ended, perhaps without passing it on."""
        if not task.cancelled():
            task.exception()  # read, so that no warning says that nobody did
        if not self._counted:
            self._counted = True
            self._batch.count()


def _outcome(task: asyncio.Task[None]) -> BaseException | None:
    return NotPublished("the publish was cancelled") if task.cancelled() else task.exception()


def _name(middleware: Any) -> str:
    return str(getattr(middleware, "__qualname__", None) or type(middleware).__qualname__)
