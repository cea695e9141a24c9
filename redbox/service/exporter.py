"""Metrics of boxes without a relay, for Prometheus."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from redbox.box import Box
from redbox.box.reports import Stats
from redbox.errors import RedboxError, StoreUnavailable
from redbox.relay import Relay
from redbox.relay.metrics import STORE_SECONDS, Exposition
from redbox.relay.series import add_box, add_relay
from redbox.service import HOST
from redbox.service.boxes import Boxes
from redbox.service.health import FRESH_SECONDS, Health
from redbox.service.monitor import HealthServer


class BoxHealth(Health):
    """The metrics of a box, or of all boxes of its store. The store is read when it is asked for, but at most once per
    second."""

    def __init__(self, boxes: Boxes, *, all_boxes: bool = False, relays: Sequence[Relay] = ()) -> None:
        """The default box is read or, with `all_boxes`, all boxes of its store, over its connection. `relays`: relays
        of this process, whose metrics are added."""
        self._relays = relays
        self._store = boxes
        self._box = boxes.default
        self._all = all_boxes
        self._boxes: dict[str, Box] = {self._box.name: self._box}
        self._reading = asyncio.Lock()
        self._text, self._read_at = "", float("-inf")
        self._problem = ""
        self._unlisted = ""  # why the boxes could not be listed
        self._unreadable: dict[str, str] = {}  # box → reason, while others can be read

    async def metrics(self) -> str:
        async with self._reading:
            if time.monotonic() - self._read_at >= FRESH_SECONDS:
                self._text = await self._read()
                self._read_at = time.monotonic()
            return self._text

    async def health(self) -> tuple[bool, dict[str, Any]]:
        """Not ready if no box can be read. A box that cannot be read beside others, such as one of a newer layout, is
        named."""
        await self.metrics()
        report: dict[str, Any] = {"status": "failing" if self._problem else "ok", "problem": self._problem or None}
        if self._unreadable:
            report["unreadable"] = self._unreadable
        if self._unlisted:
            report["unlisted"] = self._unlisted
        return not self._problem, report

    async def _read(self) -> str:
        exposition, self._unreadable = Exposition(), {}
        for relay in self._relays:
            add_relay(exposition, relay)
        self._unlisted = await self._list() if self._all else ""
        found = dict(
            zip(self._boxes, await asyncio.gather(*(self._stats(box) for box in self._boxes.values())), strict=True)
        )
        away = [isinstance(each, StoreUnavailable | TimeoutError) for each in found.values()]
        if self._all:  # a box without a layout was removed
            found = {name: each for name, each in found.items() if isinstance(each, Exception) or each.layout}
        for name, stats in found.items():
            add_box(exposition, name, self._box.where, None if isinstance(stats, Exception) else stats)
        failed = {name: _reason(each) for name, each in found.items() if isinstance(each, Exception)}
        if failed and len(failed) == len(found):
            self._problem = next(iter(failed.values()))
        else:
            self._problem, self._unreadable = "", failed
        exposition.add("redbox_up", int(not all(away)), self._box.where)
        return exposition.text()

    async def _list(self) -> str:
        """Looks which boxes there are; returns why that failed, or nothing. Those that are known stay."""
        try:
            names = await self._store.names()
        except RedboxError as error:
            return _reason(error)
        self._boxes = {name: self._boxes.get(name) or self._store.beside(name) for name in names}
        return ""

    async def _stats(self, box: Box) -> Stats | Exception:
        try:
            async with asyncio.timeout(STORE_SECONDS):
                return await box.stats()
        except (RedboxError, TimeoutError) as error:
            return error


class Exporter(HealthServer):
    """Serves the metrics of a box, or of all boxes of its store."""

    def __init__(self, box: Box, port: int, host: str = HOST, *, all_boxes: bool = False) -> None:
        super().__init__(BoxHealth(Boxes(box), all_boxes=all_boxes), port, host)


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, RedboxError) else f"the store did not answer within {STORE_SECONDS:g} s"
