"""The box for code that is not async: scripts, Django views, notebooks.

    from redbox.sync import Box

    with Box.open("redis://localhost:6379/0", name="orders") as box:
        box.put(Event("user.created", {"id": 42}))

One background thread runs the event loop; the box may be used from any number of threads, and their puts coalesce.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from anyio.from_thread import BlockingPortal, start_blocking_portal

from redbox.box import Box as AsyncBox
from redbox.errors import UsageError
from redbox.events import Receipt, Record


class Box:
    """A blocking view of a box: put, put_many, get and list."""

    def __init__(self, box: AsyncBox) -> None:
        self._box = box
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None

    @classmethod
    def open(cls, url: str | None = None, **options: Any) -> Box:
        """As `redbox.Box.open`; no I/O happens yet."""
        return cls(AsyncBox.open(url, **options))

    def __enter__(self) -> Self:
        self._portal = self._stack.enter_context(start_blocking_portal("asyncio"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Waits for puts under way and closes the connections."""
        if self._portal is not None:
            self._portal.call(self._box.aclose)
            self._portal = None
            self._stack.close()

    def put(self, event: Any, **options: Any) -> Receipt:
        return self._call(self._box.put, event, **options)  # type: ignore[no-any-return]

    def put_many(self, events: Iterable[Any], **options: Any) -> list[Receipt]:
        return self._call(self._box.put_many, events, **options)  # type: ignore[no-any-return]

    def get(self, event_id: str) -> Record | None:
        return self._call(self._box.get, event_id)  # type: ignore[no-any-return]

    def list(self, **filters: Any) -> Iterator[Record]:
        """As `redbox.Box.list`, a page at a time."""
        limit, cursor = filters.pop("limit", None), None
        while limit is None or limit > 0:
            page = self._call(self._box.page, limit=min(limit or 500, 500), cursor=cursor, **filters)
            yield from page.records
            cursor = page.cursor
            limit = None if limit is None else limit - len(page.records)
            if cursor is None:
                return

    def _call(self, method: Any, *args: Any, **options: Any) -> Any:
        if self._portal is None:
            if self._box._closed:  # noqa: SLF001  # the same box, seen from another side
                raise UsageError("this box was closed; open it again with Box.open")
            self.__enter__()
        assert self._portal is not None

        async def run() -> Any:
            return await method(*args, **options)

        return self._portal.call(run)
