"""What a publisher is, and what every publisher passes on of an event.

A publisher chooses what becomes of an event by what it raises: nothing (the target acknowledged it), `Reject` (never),
`RetryLater` (not before), `Unavailable` (the target is down), anything else (a failure: to be tried again).
"""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from redbox.events import Claim

CLAIM_HEADER: Final = "redbox-claim"
ORDERING_HEADER: Final = "redbox-ordering-key"
ATTEMPT_HEADER: Final = "redbox-attempt"
REASON_HEADER: Final = "redbox-dead-reason"  # only on what is handed to a dead-letter target
ADDED_HEADERS: Final = frozenset({CLAIM_HEADER, ORDERING_HEADER, ATTEMPT_HEADER, REASON_HEADER})

#: As W3C Trace Context writes it: version, trace id, parent id and flags; an id is never all zeros.
_is_traceparent = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}").fullmatch


class Publisher(ABC):
    """Hands events to a target: one attempt per call, and returning means that the target acknowledged it.

    `publish` is called concurrently. A publisher whose target takes many at once sets `many` and overrides
    `publish_many`.
    """

    #: How many events `publish_many` takes at once; with 1 the relay calls `publish`.
    many: ClassVar[int] = 1

    #: How many calls of `publish` or `publish_many` may overlap; None for as many as `at_once` allows. May be set per
    #: instance, before `open`.
    calls_at_once: int | None = None

    #: Names of options that must not be written down or shown.
    secrets: ClassVar[frozenset[str]] = frozenset()

    @property
    @abstractmethod
    def target(self) -> str:
        """Where it publishes to, in words without secrets; for logs."""

    def at_once(self, concurrency: int) -> int:
        """How many events it takes at once from a relay that would give it `concurrency`; called before `open`.

        The relay gives it no more, and never more than `concurrency`: the other events wait in the relay's buffer,
        where no time limit runs.
        """
        return concurrency

    def unfinished(self) -> asyncio.Future[Any] | None:
        """What a cancelled `publish` of the current task left running, such as a thread; None for nothing.

        Until it has ended, the relay gives the publisher one event less at once.
        """
        return None

    async def open(self, box: str) -> None:  # noqa: B027  # not every target needs it
        """Called once before the first event, on the event loop that will publish; `box` is the name of the box."""

    async def aclose(self) -> None:  # noqa: B027  # same
        """Called once after the last event; also when `open` failed."""

    @abstractmethod
    async def publish(self, claim: Claim) -> None:
        """Publishes `claim.event`."""

    async def publish_many(self, claims: Sequence[Claim]) -> Sequence[BaseException | None]:
        """Publishes several; for each None, or what `publish` would have raised. Never more than `many`."""
        outcomes: list[BaseException | None] = []
        for claim in claims:
            try:
                await self.publish(claim)
            except Exception as error:
                outcomes.append(error)
            else:
                outcomes.append(None)
        return outcomes


def passed_on(claim: Claim) -> dict[str, str]:
    """The headers of an event as they are, and those that redbox adds for consumers: the claim number to fence on and
    the ordering key within which it grows, the number of the attempt, and the trace context of the put when that is
    well-formed and the event brings none of its own."""
    event = claim.event
    headers = dict(event.headers)
    trace = event.metadata.get("traceparent")
    if trace and _is_traceparent(trace) and not any(name.lower() == "traceparent" for name in headers):
        headers["traceparent"] = trace
    headers[CLAIM_HEADER] = str(claim.number)
    headers[ATTEMPT_HEADER] = str(claim.attempts)
    if event.ordering_key is not None:
        headers[ORDERING_HEADER] = event.ordering_key
    return headers
