"""Marks of a box: short texts under a name that all processes of the box share, and that end by themselves."""

from __future__ import annotations

from redbox.box.box import Box


class Marks:
    """Reads and writes marks. No event changes. `holds` is in seconds; a mark ends that long after it was last set."""

    def __init__(self, box: Box) -> None:
        self._store = box._store  # noqa: SLF001 - a mark is a lock whose token says something

    async def read(self, name: str) -> str:
        """The text of a mark; empty if there is none."""
        # No mark has an empty text, so this keeps none. A GET would be a command more that relays need.
        return await self._store.lock("keep", name, "", 1)

    async def set(self, name: str, text: str, holds: float) -> str:
        """Sets a mark, or prolongs it if it has this text; returns its text. A mark with another text is left."""
        return await self._store.lock("take", name, text, holds)

    async def prolong(self, name: str, text: str, holds: float) -> None:
        """Prolongs a mark, if it still has this text."""
        await self._store.lock("keep", name, text, holds)

    async def remove(self, name: str, text: str) -> None:
        """Removes a mark, if it still has this text."""
        await self._store.lock("free", name, text, 1)
