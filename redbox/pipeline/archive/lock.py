"""One archive run of a box at a time: a lock in the box's own Redis that ends with its holder."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from redbox.errors import RedboxError, StoreError
from redbox.pipeline.source.connection import Connection, connected
from redbox.pipeline.source.options import Address

HOLDS: Final = 60.0  # seconds without a sign of life
RENEWS: Final = 15.0
FREES: Final = 5.0  # seconds for which a store that is away is asked to free it


@contextmanager
def locked(at: Address, patience: float = 0.0) -> Iterator[Callable[[], None]]:
    """Holds the lock, and frees it however the block ends; yields a function that raises when the lock was lost
    meanwhile. A store that is away is waited for, up to `patience` seconds."""
    token, over = secrets.token_hex(8), threading.Event()
    with connected(at, patience) as connection:
        if connection.run(connection.store.lock, "take", "archive", token, HOLDS) != token:
            raise RedboxError(
                f"another archive run of box {at.box!r} is running; try again when it has ended, or "
                f"{HOLDS:.0f} seconds after it was killed"
            )
    keeper = threading.Thread(target=_keep, args=(at, token, over), daemon=True)
    keeper.start()

    def still_ours() -> None:
        with connected(at, patience) as connection:
            if connection.run(connection.store.lock, "keep", "archive", token, HOLDS) != token:
                raise RedboxError(
                    f"the lock on the archive of box {at.box!r} was lost, and another run may have held it since; "
                    "nothing was removed; run it again"
                )

    try:
        yield still_ours
    finally:
        over.set()
        keeper.join()
        # Without an answer the lock ends by its time; the error that ended the block is the one to raise.
        with suppress(StoreError), connected(at, FREES) as connection:
            connection.run(connection.store.lock, "free", "archive", token)


def _keep(at: Address, token: str, over: threading.Event) -> None:
    connection = Connection(at)
    try:
        while not over.wait(RENEWS):
            try:
                connection.run(connection.store.lock, "keep", "archive", token, HOLDS)
            except StoreError:  # the next turn may succeed; `still_ours` decides
                continue
    finally:
        connection.close()
