"""The boxes that the service serves: all of one store, over the connections of the default box."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import msgspec

from redbox.box import Box
from redbox.box.beside import beside
from redbox.errors import RedboxError, UnknownBox

KNOWN_SECONDS: Final = 5.0  # how long a box that existed is not looked for again
IDLE_SECONDS: Final = 3600.0  # after which a box that nobody asks for is forgotten
LISTING_SHARE: Final = 0.01  # of the time that listings may take: each is a pass over all keys of the server
LISTING_WAIT: Final = 1.0  # seconds that a caller waits for a new listing, before it gets the one before


class _Known(msgspec.Struct):
    """A box, when it was last seen to exist, and when it was last asked for."""

    box: Box
    seen: float
    asked: float


class Boxes:
    """Boxes of one store, opened when first asked for. The default box always exists; any other must."""

    def __init__(self, default: Box) -> None:
        self.default = default
        self._known: dict[str, _Known] = {}
        self._listed: list[str] = []
        self._listing: asyncio.Task[None] | None = None
        self._list_at = float("-inf")
        self._failure: RedboxError | None = None  # of the last listing

    async def get(self, name: str | None = None) -> Box:
        """The box of this name, by default the default box. Raises UnknownBox; for a removed box, at the latest five
        seconds after its removal."""
        if name is None or name == self.default.name:
            return self.default
        now, known = time.monotonic(), self._known.get(name)
        if known is not None and now - known.seen < KNOWN_SECONDS:
            known.asked = now
            return known.box
        box = beside(self.default, name) if known is None else known.box
        if not await box.exists():
            self._known.pop(name, None)
            raise UnknownBox(
                f"there is no box {name!r}; requests do not create boxes. If the name is right, create the box on the "
                f"store of the service with `redbox --box {name} configure max_pending=default --yes`"
            )
        known = self._known.setdefault(name, _Known(box, now, now))
        known.seen = known.asked = now
        return known.box

    def beside(self, name: str) -> Box:
        """A box of the store, which need not exist."""
        if name == self.default.name:
            return self.default
        known = self._known.get(name)
        return beside(self.default, name) if known is None else known.box

    async def names(self) -> list[str]:
        """The names of all boxes of the store, in order, and always the default box.

        All callers share one listing. A new box may be missing for as long as a hundred listings take, unless it was
        asked for; before the first listing has ended, only those that were asked for are known.
        """
        if self._listing is None and time.monotonic() >= self._list_at:
            self._failure = None  # it says nothing about the new one
            self._listing = asyncio.create_task(self._list(), name="redbox list of boxes")
        if self._listing is not None:
            await asyncio.wait([self._listing], timeout=LISTING_WAIT)
        if self._failure is not None:
            raise self._failure
        return sorted({self.default.name, *self._listed, *self._known})

    async def _list(self) -> None:
        began = time.monotonic()
        try:
            self._listed, self._failure = await self.default.names(), None
            ended = time.monotonic()
            self._list_at = ended + (ended - began) / LISTING_SHARE
        except RedboxError as error:
            self._failure = error
        finally:
            self._listing = None

    @property
    def opened(self) -> list[Box]:
        """The boxes that somebody asked for within an hour, and the default box."""
        oldest = time.monotonic() - IDLE_SECONDS
        self._known = {name: known for name, known in self._known.items() if known.asked >= oldest}
        return [self.default, *(known.box for known in self._known.values())]

    async def aclose(self) -> None:
        """Ends a listing. The connections belong to the default box, and that to the caller."""
        if self._listing is not None:
            self._listing.cancel()
            await asyncio.wait([self._listing])
