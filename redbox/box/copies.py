"""Puts copies of events into a box. The id makes the put idempotent: however often it is repeated, one is stored."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from redbox.box.box import Box
from redbox.box.receipts import Receipts, chunks
from redbox.errors import Refused, StoreError
from redbox.events import Event
from redbox.settings import BATCH_BYTES
from redbox.store.codec import EncodedEvent
from redbox.store.scripts.replies import CREATED
from redbox.store.server.durability import Durability

Copy = tuple[Event, EncodedEvent]


async def put_copies(
    box: Box, copies: Sequence[Copy], durability: str | None = None
) -> list[bool | Refused | StoreError]:
    """Puts events as they were encoded, in the order given.

    Returns for each True if it was created, False if the box had it already with the same content, or why it was not
    put. If the store fails, the rest gets its error; some of them may have been put.
    """
    store, own_durability = box._store, box._options[0]  # noqa: SLF001 - as `beside`
    level = Durability.parse(durability or own_durability)
    receipts = Receipts(box.name, BATCH_BYTES)
    outcomes: list[bool | Refused | StoreError] = []
    for chunk in chunks([*copies]):
        try:
            store.ensure_open()
            replies = await store.put("each", [encoded for _, encoded in chunk], level)
        except StoreError as error:
            return outcomes + [copy.copy(error) for _ in range(len(copies) - len(outcomes))]
        if replies.count(CREATED) == len(replies):  # most often
            outcomes += [True] * len(replies)
            continue
        for (event, _), reply in zip(chunk, replies, strict=True):
            try:
                outcomes.append(receipts.of(event, reply, level).created)
            except (Refused, StoreError) as error:
                outcomes.append(error)
    return outcomes
