"""What a job that changes events leaves in the box's log: one line, also when it ended early."""

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


class Noted(msgspec.Struct, frozen=True, kw_only=True):
    """A job as the log tells of it."""

    at: Address
    action: str
    who: str
    why: str
    detail: str

    def note(self, count: int, ids: Sequence[str], before: str = "") -> None:
        detail = f"{before}{self.detail}"[:DETAIL_LENGTH]
        token = token_hex(8)  # the call may be repeated: its line is written once
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
    def or_early(self, outcome: str) -> Iterator[None]:
        """Notes that the block failed, and what may have been done by then."""
        try:
            yield
        except BaseException:
            with suppress(RedboxError):
                self.note(0, (), f"ended early, so {outcome}: ")
            raise
