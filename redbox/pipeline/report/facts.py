"""The facts of a report: the parts of its tables that fit on a page."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

Row = dict[str, Any]

HOUR: Final = 3600  # seconds
_MINUTE, _DAY = 60, 24 * HOUR
#: The time that one bar of a plot may span, in seconds.
STEPS: Final = (
    1, 5, 15, _MINUTE, 5 * _MINUTE, 15 * _MINUTE, 30 * _MINUTE, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, _DAY,
    2 * _DAY, 7 * _DAY, 14 * _DAY, 28 * _DAY, 84 * _DAY,
)  # fmt: skip
MAX_BINS: Final = 96
MAX_TYPES: Final = 7  # with a colour of their own
MAX_CAUSES: Final = 12
MAX_ROWS: Final = 15  # of a table on the page
MAX_ATTEMPTS: Final = 10  # this many and more are one bar
MIN_EVENTS_OF_A_KEY: Final = 5  # one slow event does not make a slow key


class TimeAxis(msgspec.Struct, frozen=True):
    """The bins of the plots over time: `count` of them, `step` seconds each."""

    start: datetime
    step: int
    count: int


class Facts(msgspec.Struct, kw_only=True, frozen=True):
    """Rows are those of the tables of the same name. `all_…` is the full count of a list that is cut."""

    box: str
    store: str
    archived: bool
    made_at: datetime
    since: datetime | None
    until: datetime | None
    axis: TimeAxis
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
        """The number of events with this state, phase or place."""
        return sum(row["events"] for row in self.overview if all(row[name] == value for name, value in having.items()))

    @property
    def total(self) -> Row | None:
        """The latency of all types together; None if nothing was published."""
        return next((row for row in self.latency if row["event_type"] is None), None)

    @property
    def oldest_due(self) -> datetime | None:
        """Since when the oldest event that is due has been waiting for a claim."""
        waiting = [row["first_available"] for row in self.overview if row["phase"] == "AVAILABLE"]
        return min(waiting, default=None)


def time_axis(overview: list[Row]) -> TimeAxis:
    """The axis that holds all events in at most MAX_BINS bins, as short as possible."""
    if not overview:
        return TimeAxis(datetime.fromtimestamp(0, UTC), HOUR, 0)
    first = min(row["first_created"] for row in overview).timestamp()
    last = max(row["last_change"] for row in overview).timestamp()
    longest = STEPS[-1]
    fitting = [step for step in STEPS if last // step - first // step < MAX_BINS]
    step = fitting[0] if fitting else longest * math.ceil((last - first) / longest / (MAX_BINS - 1))
    start = first // step * step
    return TimeAxis(datetime.fromtimestamp(start, UTC), step, int((last - start) // step) + 1)


def facts(rows: Mapping[str, list[Row]], volume: list[Row], throughput: list[Row], **known: Any) -> Facts:
    """The facts from the rows of all tables, and of volume and throughput by the bins of the axis."""
    by_type = Counter[str]()
    for row in rows["volume"]:
        by_type[row["event_type"]] += row["events"]
    types = sorted(by_type, key=lambda name: (-by_type[name], name or ""))
    return Facts(
        **known,
        overview=rows["overview"],
        types=types[:MAX_TYPES],
        all_types=len(types),
        volume=volume,
        throughput=throughput,
        latency=rows["latency"][: MAX_ROWS + 1],
        attempts=_attempts(rows["attempts"]),
        causes=rows["causes"][:MAX_CAUSES],
        all_causes=len(rows["causes"]),
        failures=sum(row["failures"] for row in rows["causes"]),
        dead=_dead(rows["dead"])[:MAX_ROWS],
        slowest=rows["slowest_keys"][:MAX_ROWS],
        tables=list(rows),
    )


def _attempts(rows: list[Row]) -> list[Row]:
    """The numbers of attempts, with the high ones as one."""
    made: dict[int, Row] = {}
    for row in rows:
        attempts = min(row["attempts"], MAX_ATTEMPTS)
        total = made.setdefault(attempts, {"attempts": attempts, "published": 0, "dead": 0})
        for name in ("published", "dead"):
            total[name] += row[name]
    return [made[attempts] for attempts in sorted(made)]


def _dead(rows: list[Row]) -> list[Row]:
    """Dead events by type, each with its most frequent fingerprint. Rows come with the most frequent ones first."""
    made: dict[str, Row] = {}
    for row in rows:
        known = made.setdefault(row["event_type"], {**row, "dead": 0})
        known["dead"] += row["dead"]
        known["last_died"] = max(known["last_died"], row["last_died"])
    return sorted(made.values(), key=lambda row: (-row["dead"], row["event_type"] or ""))
