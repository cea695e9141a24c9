"""Tasks: Python over the partitions of a DataFrame, from Arrow to Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Work = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

#: The order of a line. Events of an earlier version of redbox have no `seq`: they come first, by their time.
LINE_ORDER: Final = ("seq", "created_at", "event_id")


def current_task() -> TaskContext:
    """The task that this process runs."""
    running = TaskContext.get()
    assert running is not None, "this runs in a task"
    return running


def map_arrow(table: DataFrame, work: Work, schema: str) -> DataFrame:
    """`table.mapInArrow` without pandas, which it asks for and does not need: a task starts two seconds earlier."""
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

    called = UserDefinedFunction(work, schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column: Any = called(*[table[f"`{name}`"] for name in table.columns])
    source: Any = table
    return ClassicDataFrame(source._jdf.mapInArrow(column._jc, False, None), table.sparkSession)  # noqa: SLF001


def in_line_order(table: DataFrame, tasks: int | None = None) -> DataFrame:
    """Brings the events of one ordering key into one task, and sorts each task by the order of the lines."""
    from pyspark.sql import functions as f

    key = f.coalesce("ordering_key", "event_id")
    parted = table.repartition(key) if tasks is None else table.repartition(tasks, key)
    return parted.sortWithinPartitions(*LINE_ORDER)
