"""The boxes that the service serves: all of one store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from redbox.box import Box
from redbox.errors import UnknownBox


class Boxes:
    """Boxes of one store, opened when first asked for. The default box always exists; any other must."""

    def __init__(self, default: Box, open_box: Callable[[str], Box]) -> None:
        self.default = default
        self._open_box = open_box
        self._open: dict[str, Box] = {default.name: default}
        self._opening = asyncio.Lock()

    async def get(self, name: str | None = None) -> Box:
        """The box of this name, by default the default box. Raises UnknownBox."""
        if name is None:
            return self.default
        found = self._open.get(name)
        if found is not None:
            return found
        async with self._opening:
            if name not in self._open:
                box = self._open_box(name)
                if not await box.exists():
                    await box.aclose()
                    raise UnknownBox(f"there is no box {name!r}; put an event into it with `redbox --box {name} put`")
                self._open[name] = box
        return self._open[name]

    async def names(self) -> list[str]:
        """The names of all boxes of the store, in order; the default box may not exist yet."""
        return sorted({self.default.name, *await self.default.names()})

    @property
    def opened(self) -> list[Box]:
        """The boxes that are open."""
        return list(self._open.values())

    async def aclose(self) -> None:
        """Closes all but the default box, which belongs to the caller."""
        for box in self._open.values():
            if box is not self.default:
                await box.aclose()
