"""One archive run of a box at a time: a lock in the box's own Redis that expires with its holder."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from redbox.errors import RedboxError, StoreError
from redbox.pipeline.source.connection import Connection, connected
from redbox.pipeline.source.options import Address

LOCK_TIME: Final = 60.0  # seconds until the lock expires, unless renewed
RENEW_INTERVAL: Final = 15.0  # seconds
FREE_PATIENCE: Final = 5.0  # seconds to wait for an unreachable store when the lock is freed


@contextmanager
def locked(at: Address, patience: float = 0.0) -> Iterator[Callable[[], None]]:
    """Holds the lock while the block runs; yields a function that raises if the lock was lost meanwhile.

    An unreachable store is waited for, up to `patience` seconds.
    """
    token, over = secrets.token_hex(8), threading.Event()
    with connected(at, patience) as connection:
        if connection.run(connection.store.lock, "take", "archive", token, LOCK_TIME) != token:
            raise RedboxError(
                f"another archive run of box {at.box!r} is running; try again when it has ended, or "
                f"{LOCK_TIME:.0f} seconds after it was killed"
            )
    keeper = threading.Thread(target=_keep, args=(at, token, over), daemon=True)
    keeper.start()

    def still_ours() -> None:
        with connected(at, patience) as connection:
            if connection.run(connection.store.lock, "keep", "archive", token, LOCK_TIME) != token:
                raise RedboxError(
                    f"the lock on the archive of box {at.box!r} was lost, and another run may have held it since; "
                    "nothing was removed; run it again"
                )

    try:
        yield still_ours
    finally:
        over.set()
        keeper.join()
        # Without a reply the lock expires by itself; the error that ended the block is the one to raise.
        with suppress(StoreError), connected(at, FREE_PATIENCE) as connection:
            connection.run(connection.store.lock, "free", "archive", token)


def _keep(at: Address, token: str, over: threading.Event) -> None:
    connection = Connection(at)
    try:
        while not over.wait(RENEW_INTERVAL):
            try:
                connection.run(connection.store.lock, "keep", "archive", token, LOCK_TIME)
            except StoreError:  # the next turn may succeed; `still_ours` decides
                continue
    finally:
        connection.close()
