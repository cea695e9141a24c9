"""Several boxes of one server over the same connections."""

from __future__ import annotations

from redbox.box.box import Box
from redbox.store.connect import Endpoint
from redbox.store.store import Store
from redbox.store.wire.base import Wire
from redbox.store.wire.borrowed import BorrowedWire


def connection_losses(box: Box) -> int:
    """How many connections to the server of a box were lost so far. The server may have lost data with one."""
    return box._store.exchanges.losses  # noqa: SLF001 - as `beside`


def beside(box: Box, name: str) -> Box:
    """Another box of the same server, with the same options. It uses the connections of `box`, and only while that is
    open; it need not be closed."""
    lender = box._store.exchanges  # noqa: SLF001 - the other box takes its place

    async def open_wire() -> Wire:
        return BorrowedWire(await lender.wire())

    return box._with(Store(Endpoint(lender.endpoint.description, open_wire), name))  # noqa: SLF001
