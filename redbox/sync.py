"""A blocking box for code that is not async: scripts, Django views, notebooks.

    from redbox.sync import Box

    with Box.open("redis://localhost:6379/0", name="orders") as box:
        box.put(Event("user.created", {"id": 42}))

One background thread runs the event loop. Any number of threads may share the box, and their puts coalesce. A forked
process gets its own loop and connections. An interrupted call, such as by Ctrl-C, is cancelled: what it had sent to the
store may have taken effect.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from types import TracebackType
from typing import Any, Final, Self, Unpack

from msgspec import Struct

from redbox.arguments import whole_number
from redbox.box import Box as AsyncBox
from redbox.box.bulk.replay import ReplayOptions
from redbox.box.put import InTransaction, OnBatchConflict, OnConflict
from redbox.box.reports import Replayed, Stats
from redbox.box.transaction import Recorder
from redbox.box.transaction import Transaction as AsyncTransaction
from redbox.errors import UsageError
from redbox.events import Event, Receipt, Record
from redbox.settings import PAGE_LIMIT
from redbox.urls import default_url

_Run = Callable[[Coroutine[Any, Any, Any]], Any]
CLOSED: Final = "this box was closed; open it again with Box.open"
CLOSED_MEANWHILE: Final = (
    "this box was closed by another thread; what the call had sent to the store may have taken effect"
)
#: Held while a forked process takes over a box. Taken around every fork, so that no child inherits it locked.
_taking_over = threading.Lock()
os.register_at_fork(
    before=_taking_over.acquire, after_in_parent=_taking_over.release, after_in_child=_taking_over.release
)


class _Loop:
    """An event loop in a daemon thread, which does not keep the interpreter alive."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._accepting = threading.Lock()  # held while a call is handed to the loop, so that none comes after its end
        self._stopped = False
        self._thread = threading.Thread(target=self._loop.run_forever, name="redbox", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        if threading.current_thread() is self._thread:
            work.close()
            raise UsageError("a callback of a blocking box must not call the box: its own call would wait for itself")
        with self._accepting:
            if self._stopped:
                work.close()
                raise UsageError(CLOSED)
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise UsageError(CLOSED_MEANWHILE) from None
        finally:
            future.cancel()  # the caller was interrupted; otherwise it is done, and this has no effect

    def stop(self) -> None:
        """Ends the calls that are still running, then the thread."""
        with self._accepting:
            self._stopped = True
        asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_others() -> None:
    """Cancels all other tasks of the loop, and waits for their ends."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()


class Transaction:
    """`with box.transaction() as tx:` as `redbox.box.transaction.Transaction`, for the one thread of the block.

    `tx.redis` takes the commands of redis-py and only queues them. After the block, `tx.results` holds their replies
    and `tx.receipts` a receipt for each event.
    """

    def __init__(self, transaction: AsyncTransaction, run: _Run) -> None:
        self._transaction = transaction
        self._run = run
        self._process = os.getpid()

    @property
    def redis(self) -> Recorder:
        return self._transaction.redis

    @property
    def results(self) -> Sequence[Any]:
        return self._transaction.results

    @property
    def receipts(self) -> Sequence[Receipt]:
        return self._transaction.receipts

    def put(self, event: Event | Struct, *, on_conflict: InTransaction = "raise") -> str:
        """Adds an event; returns its id. It is validated here and written when the block ends."""
        return self._transaction.put(event, on_conflict=on_conflict)

    def key(self, name: str) -> str:
        """A key name of the caller's own that is in the box's cluster slot."""
        return self._transaction.key(name)

    def __enter__(self) -> Self:
        self._run(self._transaction.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.redis.open = False
        if error is not None:
            return  # nothing was sent
        if self._process != os.getpid():
            raise UsageError("this transaction was begun before a fork; nothing was written; begin it in this process")
        self._run(self._transaction.__aexit__(kind, error, traceback))


class Box:
    """A blocking view of a box: put, transaction, get, list, stats and replay."""

    def __init__(self, url: str | None, options: dict[str, Any]) -> None:
        self._url = url if options.get("client") is not None else default_url(url)
        self._options = options
        self._opened_by = os.getpid()
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        """Makes what belongs to one process. The process comes last: it tells other threads that the rest is there."""
        self._box = AsyncBox.open(self._url, **self._options)
        self._lock = threading.Lock()
        self._loop: _Loop | None = None
        self._process = os.getpid()

    def _take_over(self) -> None:
        """After a fork: the thread, the sockets and the lock, which may be held, stayed with the parent."""
        if self._process != os.getpid():
            with _taking_over:
                if self._process != os.getpid():  # else another thread has done it
                    self._begin()

    @classmethod
    def open(cls, url: str | None = None, **options: Any) -> Self:
        """As `redbox.Box.open`; no I/O happens yet."""
        return cls(url, options)

    def __repr__(self) -> str:
        return repr(self._box)

    @property
    def name(self) -> str:
        return self._box.name

    @property
    def where(self) -> str:
        """The store in words, without secrets."""
        return self._box.where

    def __enter__(self) -> Self:
        self._running()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Waits for calls in flight and closes the connections. Runs by itself when the interpreter exits.

        A call that is made in several steps, such as a long replay in another thread, ends and raises UsageError.
        """
        self._take_over()
        with self._lock:
            self._closed = True
            if self._loop is not None:
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

    def transaction(self, *, durability: str | None = None) -> Transaction:
        """As `redbox.Box.transaction`, for a `with` block."""
        self._running()
        return Transaction(self._box.transaction(durability=durability), self._run)

    def get(self, event_id: str) -> Record | None:
        """As `redbox.Box.get`."""
        return self._call("get", event_id)  # type: ignore[no-any-return]

    def count(self, *, limit: int | None = None, **filters: Any) -> int:
        """As `redbox.Box.count`."""
        return self._call("count", limit=limit, **filters)  # type: ignore[no-any-return]

    def stats(self) -> Stats:
        """As `redbox.Box.stats`."""
        return self._call("stats")  # type: ignore[no-any-return]

    def replay(self, ids: Sequence[str | Record] | None = None, **options: Unpack[ReplayOptions]) -> Replayed:
        """As `redbox.Box.replay`. `progress` and `watching` are called in the thread of the event loop; they must not
        call the box."""
        return self._call("replay", ids, **options)  # type: ignore[no-any-return]

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

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            loop = self._running()
        except BaseException:
            work.close()
            raise
        return loop.run(work)

    def _running(self) -> _Loop:
        """The thread with the event loop, started when first needed."""
        if self._url is None and self._opened_by != os.getpid():
            raise UsageError("a box on a client of your own does not survive a fork; open it in the child")
        self._take_over()
        with self._lock:
            if self._closed:
                raise UsageError(CLOSED)
            if self._loop is None:
                self._loop = _Loop()
                atexit.register(self.close)
            return self._loop
