"""The entry of a job in the box's operations log: one per job, also if the job failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from secrets import token_hex
from typing import Final

import msgspec

from redbox.errors import RedboxError
from redbox.pipeline.source.connection import connected
from redbox.pipeline.source.options import PATIENCE, Address

DETAIL_LENGTH: Final = 500


class LoggedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that changes events, as the operations log describes it."""

    at: Address
    action: str
    who: str
    why: str
    detail: str

    def log(self, count: int, ids: Sequence[str], before: str = "") -> None:
        """Writes the entry: how many events were changed, and the ids of some."""
        detail = f"{before}{self.detail}"[:DETAIL_LENGTH]
        token = token_hex(8)  # the call may be repeated, and writes one entry
        with connected(self.at, PATIENCE) as connection:
            connection.run(
                connection.store.write_log,
                self.action,
                who=self.who,
                why=self.why,
                count=count,
                ids=ids,
                detail=detail,
                token=token,
            )

    @contextmanager
    def logged_if_it_fails(self, outcome: str) -> Iterator[None]:
        """Logs a failure of the block, and what may have been done by then."""
        try:
            yield
        except BaseException:
            with suppress(RedboxError):
                self.log(0, (), f"ended early, so {outcome}: ")
            raise
