"""What the page of a report is made from: small tables, collected."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec

Row = dict[str, Any]

MOST_ROWS: Final = 15  # of a table on the page
ATTEMPTS_TOGETHER: Final = 10  # so many and more are one bar
LEAST_FOR_A_KEY: Final = 5  # one slow event does not make a slow key


class Facts(msgspec.Struct, kw_only=True, frozen=True):
    """Rows are those of the tables of the same name; what is cut to its first rows has its full count beside it."""

    box: str
    store: str
    archived: bool
    made_at: datetime
    since: datetime | None
    until: datetime | None
    start: datetime
    step: int
    bins: int
    types: list[str]
    all_types: int
    overview: list[Row]
    volume: list[Row]
    throughput: list[Row]
    latency: list[Row]
    attempts: list[Row]
    causes: list[Row]
    all_causes: int
    failures: int
    dead: list[Row]
    slowest: list[Row]
    tables: list[str]

    @property
    def events(self) -> int:
        return self.count()

    @property
    def pending(self) -> int:
        return self.count(state="PENDING") + self.count(state="CLAIMED")

    def count(self, **having: str) -> int:
        """How many events have this state, phase or place."""
        return sum(row["events"] for row in self.overview if all(row[name] == value for name, value in having.items()))

    @property
    def total(self) -> Row | None:
        """The latency of all types together; None when nothing was published."""
        return next((row for row in self.latency if row["event_type"] is None), None)

    @property
    def oldest_due(self) -> datetime | None:
        """Since when the oldest event that is due waits to be claimed."""
        waiting = [row["first_available"] for row in self.overview if row["phase"] == "AVAILABLE"]
        return min(waiting, default=None)
