"""Events on their way back into the lines of their ordering keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The place in the line. Events of an earlier version of redbox have no `seq`: they come first, by their time.
ORDER: Final = ("seq", "created_at", "event_id")


def in_line_order(table: DataFrame, tasks: int | None = None) -> DataFrame:
    """The events of one ordering key in one task, and the events of each task by their places in the lines."""
    from pyspark.sql import functions as f

    key = f.coalesce("ordering_key", "event_id")
    parted = table.repartition(key) if tasks is None else table.repartition(tasks, key)
    return parted.sortWithinPartitions(*ORDER)
