"""Metrics of boxes without a relay, for Prometheus."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

from redbox.box import Box
from redbox.box.reports import Stats
from redbox.errors import RedboxError, StoreUnavailable
from redbox.relay.metrics import STORE_SECONDS, Exposition, add_box
from redbox.relay.monitor import HOST, HttpServer

FRESH_SECONDS: Final = 1.0  # how long a reading is used for further scrapes
NAMES_SECONDS: Final = 300.0  # how long the list of boxes is used: to list them costs the server a pass over its keys


class Exporter(HttpServer):
    """Serves the metrics of a box, or of all boxes of its store. The store is read when it is scraped, but at most once
    per second."""

    def __init__(self, box: Box, port: int, host: str = HOST, *, open_box: Callable[[str], Box] | None = None) -> None:
        """With `open_box`, all boxes of the store of `box` are served, new ones within five minutes."""
        super().__init__(port, host)
        self._box = box
        self._open_box = open_box
        self._boxes: dict[str, Box] = {} if open_box is not None else {box.name: box}
        self._reading = asyncio.Lock()
        self._text, self._read_at, self._listed_at = "", float("-inf"), float("-inf")
        self._problem = ""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await super().__aexit__(kind, error, traceback)
        for box in self._boxes.values():
            if box is not self._box:
                await box.aclose()

    async def metrics(self) -> str:
        async with self._reading:
            if time.monotonic() - self._read_at >= FRESH_SECONDS:
                self._text = await self._read()
                self._read_at = time.monotonic()
            return self._text

    async def health(self) -> tuple[bool, dict[str, Any]]:
        await self.metrics()
        report = {"status": "failing" if self._problem else "ok", "problem": self._problem or None}
        return not self._problem, report

    async def _read(self) -> str:
        exposition, self._problem = Exposition(), ""
        answers = await self._list()
        found = await asyncio.gather(*(self._stats(box) for box in self._boxes.values()))
        for name, stats in zip(self._boxes, found, strict=True):
            add_box(exposition, name, self._box.where, stats if isinstance(stats, Stats) else None)
        away = [isinstance(each, StoreUnavailable | TimeoutError) for each in found]
        exposition.add("redbox_up", int(not all(away) if away else answers), self._box.where)
        return exposition.text()

    async def _list(self) -> bool:
        """Opens boxes that are new, if all are served; returns whether the store answered."""
        if self._open_box is None or time.monotonic() - self._listed_at < NAMES_SECONDS:
            return True
        try:
            async with asyncio.timeout(STORE_SECONDS):
                names = await self._box.names()
        except (RedboxError, TimeoutError) as error:
            self._problem = _reason(error)
            return False
        self._listed_at = time.monotonic()
        for name in names:
            if name not in self._boxes:
                self._boxes[name] = self._open_box(name)
        return True

    async def _stats(self, box: Box) -> Stats | Exception:
        try:
            async with asyncio.timeout(STORE_SECONDS):
                return await box.stats()
        except (RedboxError, TimeoutError) as error:
            self._problem = _reason(error)
            return error


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, RedboxError) else f"the store did not answer within {STORE_SECONDS:g} s"
