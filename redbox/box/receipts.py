"""Turns the replies of the put script into receipts, or into the errors that they mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from redbox.errors import BatchRefused, BoxFull, Conflict, DurabilityNotReached, IdReused, Refused, StoreError
from redbox.events import Event, Receipt
from redbox.settings import STEP_BYTES
from redbox.store.codec import EncodedEvent, difference
from redbox.store.scripts.replies import CREATED, EXISTS, SKIPPED, PutReply, Replacement
from redbox.store.scripts.steps import WORK, put_work
from redbox.store.server.durability import Durability

T = TypeVar("T")

_KINDS: dict[type[Refused], str] = {Conflict: "conflict", IdReused: "id_reused", BoxFull: "box_full"}


class Receipts:
    """Makes the receipts of one box."""

    def __init__(self, box: str, max_payload: int) -> None:
        self._box = box
        self._max_payload = max_payload

    def of(self, event: Event, reply: PutReply, level: Durability) -> Receipt:
        """The reply for one event as its receipt; a refusal is raised."""
        if reply == CREATED:
            return Receipt(event.event_id, True, level.name)
        if reply == EXISTS:
            return Receipt(event.event_id, False, level.name)
        if reply == SKIPPED:
            raise Refused(f"event {event.event_id} was not put, since another of its batch was refused")
        if isinstance(reply, Replacement):
            return Receipt(event.event_id, True, level.name, replaced=reply.event_id)
        if isinstance(reply, bytes):
            raise StoreError(f"the server answered {reply!r} to a put, which this redbox does not know; upgrade redbox")
        word, detail = reply
        if word == "DIFFERS":
            raise IdReused(event.event_id, difference(detail, event, self._max_payload))
        if word == "CONFLICT":
            raise Conflict(event.event_id, detail.decode(), event.unique_key)
        if word == "FULL":
            full = f"box {self._box!r} holds max_pending ({detail.decode()}) events already"
            raise BoxFull(f"{full}; let a relay drain it, or raise the limit")
        if word == "UNCONFIRMED":
            raise DurabilityNotReached(detail.decode())
        raise StoreError(f"the server answered {word!r} to a put, which this redbox does not know; upgrade redbox")

    def raise_refusal(self, events: list[Event], replies: Sequence[PutReply], level: Durability) -> None:
        """Raises BatchRefused if one event of an all-or-nothing batch was refused."""
        for index, (event, reply) in enumerate(zip(events, replies, strict=True)):
            try:
                if reply != SKIPPED:
                    self.of(event, reply, level)
            except Refused as refusal:
                raise BatchRefused(f"nothing was put: event {index} was refused: {refusal}", [], index) from refusal


def refused(event: Event, refusal: Refused, level: Durability) -> Receipt:
    """The receipt of a refused event, for a caller that asked not to raise."""
    holder = refusal.holder if isinstance(refusal, Conflict) else None
    return Receipt(event.event_id, False, level.name, _KINDS.get(type(refusal), "refused"), str(refusal), holder)


def chunks(encoded: list[tuple[T, EncodedEvent]]) -> list[list[tuple[T, EncodedEvent]]]:
    """A batch in chunks that one script call may take, bounded in work and bytes."""
    cut: list[list[tuple[T, EncodedEvent]]] = []
    size = total = 0
    for item in encoded:
        event = item[1]
        length, work = len(event.body), put_work(event)
        if not cut or total + work > WORK or size + length > STEP_BYTES:
            cut.append([])
            size = total = 0
        cut[-1].append(item)
        size, total = size + length, total + work
    return cut
