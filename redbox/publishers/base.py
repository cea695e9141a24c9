"""The base class of publishers, and the headers that all of them deliver.

A publisher chooses the next state of an event by what it raises: nothing (the target acknowledged the event), `Reject`
(never retry), `RetryLater` (retry after a delay), `Unavailable` (the target is down), or any other exception (a
failure, to be retried).
"""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from redbox.errors import Unavailable, UsageError
from redbox.events import Claim
from redbox.telemetry import publishing

if TYPE_CHECKING:
    from redbox.box import Box

CLAIM_HEADER: Final = "redbox-claim"
ORDERING_HEADER: Final = "redbox-ordering-key"
ATTEMPT_HEADER: Final = "redbox-attempt"
REASON_HEADER: Final = "redbox-dead-reason"  # only for events sent to a dead-letter target
ENCODING_HEADER: Final = "redbox-content-encoding"  # only over HTTP: the Content-Encoding of the event itself
PARTITION_HEADER: Final = "redbox-partition-key"  # only for targets without a place of their own for it
ADDED_HEADERS: Final = frozenset({CLAIM_HEADER, ORDERING_HEADER, ATTEMPT_HEADER, REASON_HEADER})

#: The format of W3C Trace Context: version, trace id, parent id and flags; an id is never all zeros.
_is_traceparent = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}").fullmatch


class Publisher(ABC):
    """Publishes events to a target. Each call is one attempt; it returns once the target has acknowledged the event.

    `publish` is called concurrently. A publisher whose target accepts batches sets `many` and overrides
    `publish_many`.
    """

    #: The most events in one call of `publish_many`; with 1 the relay calls `publish`.
    many: ClassVar[int] = 1

    #: The most concurrent calls of `publish` or `publish_many`; None for as many as `at_once` allows. May be set per
    #: instance, before `open`.
    calls_at_once: int | None = None

    #: Names of options that must not be logged, stored or shown.
    secrets: ClassVar[frozenset[str]] = frozenset()

    @property
    @abstractmethod
    def target(self) -> str:
        """A description of the target for logs, without secrets."""

    def at_once(self, concurrency: int) -> int:
        """How many events the publisher accepts at once; called before `open` with the `concurrency` of the relay.

        The relay never hands over more than this, nor more than `concurrency`. Other events wait in the buffer of the
        relay, where no time limit applies.
        """
        return concurrency

    def unfinished(self) -> asyncio.Future[Any] | None:
        """Work that a cancelled `publish` of the current task left running, such as a thread; None for nothing.

        Until it ends, the relay hands over one event less at once.
        """
        return None

    def attach(self, box: Box) -> None:  # noqa: B027  # not every target needs it
        """Called when a relay of `box` gets the publisher, before everything else. Does no I/O."""

    async def open(self, box: str) -> None:  # noqa: B027  # same
        """Called once before the first event, on the event loop that publishes. `box` is the name of the box."""

    async def aclose(self) -> None:  # noqa: B027  # same
        """Called once after the last event, and also if `open` failed."""

    @abstractmethod
    async def publish(self, claim: Claim) -> None:
        """Publishes `claim.event`."""

    async def publish_many(self, claims: Sequence[Claim]) -> Sequence[BaseException | None]:
        """Publishes up to `many` events. Returns for each None, or the exception that `publish` would have raised."""
        outcomes: list[BaseException | None] = []
        for claim in claims:
            try:
                await self.publish(claim)
            except Exception as error:
                outcomes.append(error)
            else:
                outcomes.append(None)
        return outcomes


LONGEST_DELAY: Final = 60.0


def growing_delay(attempts: int) -> float:
    """Seconds until the next attempt of an event for which its target has no room: 1, 2, 4, ... They grow with every
    attempt, although none counts against the event."""
    return min(2.0 ** min(attempts - 1, 10), LONGEST_DELAY)


def not_open() -> UsageError:
    """What a publisher with connections raises before `open` and after `aclose`."""
    return UsageError("this publisher is not open; call open() first")


def closed() -> Unavailable:
    """The outcome of an event whose publisher was closed before it was sent."""
    return Unavailable("the publisher was closed")


class PublisherAround(Publisher):
    """The base of publishers around another one: everything but the publishing is that of the other."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self.many = publisher.many  # type: ignore[misc]  # that of the class of the other
        self.calls_at_once = publisher.calls_at_once

    @property
    def target(self) -> str:
        return self._publisher.target

    def at_once(self, concurrency: int) -> int:
        return self._publisher.at_once(concurrency)

    def unfinished(self) -> asyncio.Future[Any] | None:
        return self._publisher.unfinished()

    async def open(self, box: str) -> None:
        await self._publisher.open(box)

    async def aclose(self) -> None:
        await self._publisher.aclose()


def passed_on(claim: Claim) -> dict[str, str]:
    """Returns the headers of an event unchanged, and those that redbox adds for consumers: the claim number to fence
    by, the ordering key within which it grows, the number of the attempt, and the trace context of the publish, or else
    of the put, if it is valid and the event has no `traceparent` header."""
    event = claim.event
    headers = dict(event.headers)
    spans = publishing.get()
    trace = (spans and spans.get(claim.event_id)) or event.metadata.get("traceparent")
    if trace and _is_traceparent(trace) and not any(name.lower() == "traceparent" for name in headers):
        headers["traceparent"] = trace
    headers[CLAIM_HEADER] = str(claim.number)
    headers[ATTEMPT_HEADER] = str(claim.attempts)
    if event.ordering_key is not None:
        headers[ORDERING_HEADER] = event.ordering_key
    return headers
