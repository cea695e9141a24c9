"""Several boxes of one server over the same connections."""

from __future__ import annotations

from redbox.box.box import Box
from redbox.settings import MAX_PAYLOAD
from redbox.store.connect import Endpoint
from redbox.store.store import Store
from redbox.store.wire.base import Wire
from redbox.store.wire.borrowed import BorrowedWire


def beside(box: Box, name: str) -> Box:
    """Another box of the same server, for reading. It uses the connections of `box`, and only while that is open."""
    lender = box._store.exchanges  # noqa: SLF001 - the other box takes its place

    async def open_wire() -> Wire:
        return BorrowedWire(await lender.wire())

    return Box(Store(Endpoint(lender.endpoint.description, open_wire), name), "server", MAX_PAYLOAD)
