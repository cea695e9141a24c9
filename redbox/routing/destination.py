"""A destination: a box into which copies of the events of another box are put."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2s
from typing import Final

from redbox.box import Box
from redbox.box.beside import beside
from redbox.box.copies import Copy, put_copies
from redbox.errors import (
    BoxFull,
    Conflict,
    IdReused,
    NotPublished,
    RedboxError,
    Reject,
    RetryLater,
    Unavailable,
    UnexpectedReply,
    UsageError,
)
from redbox.events import EVENT_ID_LENGTH, Claim, Event, stored_event
from redbox.publishers.base import ADDED_HEADERS, REASON_HEADER, growing_delay, not_open
from redbox.routing.address import Address
from redbox.store.codec import encode_copy
from redbox.telemetry import publishing

SOURCE: Final = "redbox-source-box"  # metadata of a copy: the box it was copied from
HOPS: Final = "redbox-hops"  # metadata of a copy: how many times it was copied from box to box
DEAD_EVENT: Final = "redbox-dead-event"  # metadata of a dead letter: the id of the event that is dead
MOST_HOPS: Final = 16
LONGEST_COUNT: Final = 4  # digits; metadata may hold anything

#: A copy that was put: whether it is new there. Or why it was not put.
Result = bool | NotPublished


class TooManyHops(Reject):
    """The event went through too many boxes."""


class Destination:
    """A box of the server of the relay's box, over its connections, or of another server."""

    def __init__(self, address: Address, durability: str | None = None) -> None:
        self.address = address
        self._durability = durability
        self._box: Box | None = None
        self._source: Box | None = None
        self._may_be_source = False  # it has the name of the relay's box, and its server may be the same

    @property
    def box(self) -> Box:
        if self._box is None and self.address.store is not None:
            raise not_open()
        if self._box is None:
            raise UsageError(
                f"{self.address.text} is on the server of the relay's box, and there is no relay: give it to one as "
                "its target, or name the server: box+redis://host:port/db/NAME"
            )
        return self._box

    def attach(self, source: Box) -> None:
        """Sets the relay's box. A destination on the same server uses its connections."""
        if self._source is not None and self._source is not source:
            raise UsageError(f"{self.address.text} is the target of another relay already; make a publisher for each")
        self._source = source
        if self.address.store is None:
            if self.address.name == source.name:
                raise _into_itself(source)
            self._box = beside(source, self.address.name)

    async def open(self) -> None:
        """Opens a box of another server. Connects when first used."""
        if self.address.store is not None:
            self._box = Box.open(self.address.store, name=self.address.name)
            self._may_be_source = self._source is not None and self._source.name == self.address.name
            if self._source is not None and (self._box.where, self._box.name) == (
                self._source.where,
                self._source.name,
            ):
                raise _into_itself(self._source)

    async def aclose(self) -> None:
        if self.address.store is not None and self._box is not None:
            box, self._box = self._box, None
            await box.aclose()

    async def put(self, claims: Sequence[Claim], copies: Sequence[Copy]) -> list[Result]:
        """Puts copies of claimed events."""
        outcomes = await put_copies(self.box, copies, self._durability)
        if self._may_be_source:
            self._may_be_source = True not in outcomes  # the source has every event that is claimed there
            for claim, outcome in zip(claims, outcomes, strict=True):
                if self._may_be_source and outcome is False and (own := await self._is_source(claim)) is not None:
                    return [own] * len(claims)
        return [
            outcome if isinstance(outcome, bool) else await self._refused(outcome, claim)
            for outcome, claim in zip(outcomes, claims, strict=True)
        ]

    async def _refused(self, error: RedboxError, claim: Claim) -> Result:
        """A copy that was refused. If it differs only in headers from a copy of this box, it is there: a middleware
        gave it other headers in an earlier attempt."""
        if isinstance(error, IdReused) and error.difference == "headers":
            try:
                there = await self.box.get(claim.event_id)
            except RedboxError as failure:
                return self._problem(failure, claim)
            source = None if self._source is None else self._source.name
            if there is not None and source is not None and there.event.metadata.get(SOURCE) == source:
                return False
        return self._problem(error, claim)

    async def _is_source(self, claim: Claim) -> NotPublished | None:
        """Looks at an event that was there already: if this very claim holds it, this box is the source, under another
        name of its server. None if it is another box."""
        try:
            there = await self.box.get(claim.event_id)
        except RedboxError as error:
            return self._problem(error, claim)
        held = None if there is None or there.claimed_at is None else (there.claimed_by, there.number, there.claimed_at)
        if held == (claim.claimed_by, claim.number, claim.claimed_at):
            return Unavailable(f"{self.address.text} is the box of this relay: give another box", excuse=True)
        return None

    def _problem(self, error: RedboxError, claim: Claim) -> NotPublished:
        """The outcome, for the relay, of an event that was not put.

        A full box and a store that fails say nothing about the event: it waits. A unique_key that another event holds
        becomes free when that event is settled: it waits for that too. Another event with the same id stays there.
        """
        text, delay = f"{self.address.text}: {error}", growing_delay(claim.attempts)
        problem: NotPublished
        if isinstance(error, IdReused):
            problem = Reject(text, kind=f"{self.address.text}: event_id is used for another event")
        elif isinstance(error, Conflict):
            problem = RetryLater(delay, text, excuse=True)
        elif isinstance(error, BoxFull):
            problem = Unavailable(text, delay=delay, excuse=True)
        elif isinstance(error, UnexpectedReply):
            problem = NotPublished(text)
        else:
            problem = Unavailable(text, delay=delay, excuse=True)
        problem.__cause__ = error
        return problem


def copy_of(claim: Claim, source: str) -> Copy:
    """A copy for other boxes: the same event, available at once, with metadata that names the box it comes from."""
    event, spans = claim.event, publishing.get()
    metadata = {SOURCE: source, HOPS: "1"}
    if event.metadata:
        metadata = {**event.metadata, SOURCE: source, HOPS: str(_hops(event) + 1)}
    if spans and (trace := spans.get(claim.event_id)):
        metadata["traceparent"] = trace
    if event.headers and not ADDED_HEADERS.isdisjoint(event.headers):  # such as why a dead letter is dead
        metadata.update({name: value for name, value in event.headers.items() if name in ADDED_HEADERS})
        fields = {name: getattr(event, name) for name in event.__struct_fields__}
        fields["headers"] = {name: value for name, value in event.headers.items() if name not in ADDED_HEADERS}
        if REASON_HEADER in event.headers:
            metadata[DEAD_EVENT] = event.metadata.get(DEAD_EVENT, claim.event_id)
            fields.update(event_id=_letter_id(claim, source, metadata[DEAD_EVENT]), unique_key=None)
        event = stored_event(**fields)
    return event, encode_copy(event, metadata)


def _letter_id(claim: Claim, source: str, dead_event: str) -> str:
    """The id of a dead letter. The box may already have the event itself, and dead letters of it: from other boxes, and
    from before a replay. A dead letter that is sent again after a crash has the same id."""
    life = f"{source}\n{claim.event_id}\n{claim.due_ms}"
    suffix = f".dead.{blake2s(life.encode(), digest_size=8).hexdigest()}"
    return dead_event[: EVENT_ID_LENGTH - len(suffix)] + suffix


def too_many_hops(claim: Claim) -> TooManyHops | None:
    """The rejection of an event that was copied too often: in a cycle of boxes it would be copied for ever."""
    if claim.event.metadata and _hops(claim.event) >= MOST_HOPS:
        return TooManyHops(f"it was copied from box to box {MOST_HOPS} times already: do the routes form a cycle?")
    return None


def _hops(event: Event) -> int:
    text = event.metadata.get(HOPS, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= LONGEST_COUNT else 0


def _into_itself(source: Box) -> UsageError:
    return UsageError(f"box {source.name} cannot be the target of its own relay: give another box")
