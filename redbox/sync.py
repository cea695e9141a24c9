"""A blocking box for code that is not async: scripts, Django views, notebooks.

    from redbox.sync import Box

    with Box.open("redis://localhost:6379/0", name="orders") as box:
        box.put(Event("user.created", {"id": 42}))

One background thread runs the event loop. Any number of threads may share the box, and their puts coalesce. A forked
process gets its own loop and connections.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Coroutine, Iterable, Iterator
from types import TracebackType
from typing import Any, Self

from msgspec import Struct

from redbox.arguments import whole_number
from redbox.box import Box as AsyncBox
from redbox.box.box import default_url
from redbox.box.put import OnBatchConflict, OnConflict
from redbox.errors import UsageError
from redbox.events import Event, Receipt, Record
from redbox.settings import PAGE_LIMIT


class _Loop:
    """An event loop in a daemon thread, which does not keep the interpreter alive."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="redbox", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Box:
    """A blocking view of a box: put, put_many, get and list."""

    def __init__(self, url: str | None, options: dict[str, Any]) -> None:
        self._url = url if options.get("client") is not None else default_url(url)
        self._options = options
        self._box = AsyncBox.open(self._url, **options)
        self._closed = False
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._loop: _Loop | None = None
        self._process = os.getpid()

    @classmethod
    def open(cls, url: str | None = None, **options: Any) -> Self:
        """As `redbox.Box.open`; no I/O happens yet."""
        return cls(url, options)

    def __repr__(self) -> str:
        return repr(self._box)

    def __enter__(self) -> Self:
        self._running()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Waits for calls in flight and closes the connections. Runs by itself when the interpreter exits."""
        with self._lock:
            self._closed = True
            if self._loop is not None and self._process == os.getpid():
                atexit.unregister(self.close)
                self._loop.run(self._box.aclose())
                self._loop.stop()
            self._loop = None

    def put(
        self, event: Event | Struct, *, on_conflict: OnConflict = "raise", durability: str | None = None
    ) -> Receipt:
        """As `redbox.Box.put`."""
        return self._call("put", event, on_conflict=on_conflict, durability=durability)  # type: ignore[no-any-return]

    def put_many(
        self, events: Iterable[Event | Struct], *, on_conflict: OnBatchConflict = "raise", durability: str | None = None
    ) -> list[Receipt]:
        """As `redbox.Box.put_many`."""
        return self._call("put_many", events, on_conflict=on_conflict, durability=durability)  # type: ignore[no-any-return]

    def get(self, event_id: str) -> Record | None:
        """As `redbox.Box.get`."""
        return self._call("get", event_id)  # type: ignore[no-any-return]

    def list(self, **filters: Any) -> Iterator[Record]:
        """As `redbox.Box.list`, a page at a time."""
        limit, cursor = filters.pop("limit", None), None
        left = None if limit is None else whole_number("limit", limit, 0)
        while left is None or left > 0:
            page = self._call("page", limit=min(left or PAGE_LIMIT, PAGE_LIMIT), cursor=cursor, **filters)
            yield from page.records
            cursor = page.cursor
            left = None if left is None else left - len(page.records)
            if cursor is None:
                return

    def _call(self, method: str, *args: Any, **options: Any) -> Any:
        loop = self._running()
        return loop.run(getattr(self._box, method)(*args, **options))

    def _running(self) -> _Loop:
        """The thread with the event loop, started when first needed."""
        if self._process != os.getpid():  # forked: the thread and the sockets stayed with the parent
            if self._url is None:
                raise UsageError("a box on a client of your own does not survive a fork; open it in the child")
            self._reset()
            self._box = AsyncBox.open(self._url, **self._options)
        with self._lock:
            if self._closed:
                raise UsageError("this box was closed; open it again with Box.open")
            if self._loop is None:
                self._loop = _Loop()
                atexit.register(self.close)
            return self._loop
