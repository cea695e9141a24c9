"""Python over the partitions of a DataFrame."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from redbox.pipeline.tasks import map_arrow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.req("SP-10")


def test_a_partition_is_mapped_from_arrow_to_arrow(spark: SparkSession):
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            (numbers, texts) = (batch.column(name).to_pylist() for name in ("id", "a.b"))
            yield pa.RecordBatch.from_pydict({"told": [f"{n}{t}" for n, t in zip(numbers, texts, strict=True)]})

    table = map_arrow(spark.range(0, 4, 1, 2).selectExpr("id", "'x' as `a.b`"), work, "told string")
    assert table.columns == ["told"]
    assert sorted(row["told"] for row in table.collect()) == ["0x", "1x", "2x", "3x"]


def test_a_task_may_yield_nothing_or_more_than_it_was_given(spark: SparkSession):
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        count = sum(batch.num_rows for batch in batches)
        if count:
            yield pa.RecordBatch.from_pydict({"n": list(range(2 * count))})

    table = map_arrow(spark.range(0, 3, 1, 1).union(spark.range(0, 0, 1, 1)), work, "n long")
    assert table.count() == 6


def test_nothing_of_the_pipeline_needs_pandas():
    """It is not installed with it; where it is, it is not imported, since that takes its time."""
    code = (
        "import sys; sys.modules['pandas'] = None\n"
        "import importlib, pkgutil, redbox.pipeline\n"
        "for each in pkgutil.iter_modules(redbox.pipeline.__path__):\n"
        "    importlib.import_module(f'redbox.pipeline.{each.name}')\n"
        "from redbox.pipeline.source.rows import BatchBuilder\n"
        "from redbox.pipeline.source.schema import SCHEMA\n"
        "BatchBuilder(SCHEMA)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_session_may_be_asked_for_again(spark: SparkSession):
    from redbox import pipeline

    assert pipeline.session() is spark
    assert pipeline.session() is spark
