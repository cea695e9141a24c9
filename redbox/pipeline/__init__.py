"""The data pipeline on Spark: a box as a DataFrame, as a stream, and the jobs on top of both.

from redbox import pipeline

pipeline.register(spark)
spark.read.format("redbox").option("url", "redis://localhost:6379/0").option("box", "orders").load()
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from redbox.errors import MissingExtra

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

try:
    import pyarrow  # noqa: F401
    import pyspark.sql.datasource  # noqa: F401
except ImportError as error:
    raise MissingExtra("the pipeline", "pipeline") from error


def register(spark: SparkSession) -> None:
    """Registers the format `redbox` with a session, and makes redbox's sentence the last line of Spark's errors."""
    from redbox.pipeline.failures import quote_ours_last
    from redbox.pipeline.source.data_source import RedboxSource
    from redbox.pipeline.spark_session import active

    quote_ours_last()
    with active(spark):
        spark.dataSource.register(RedboxSource)


def session(master: str | None = None, conf: Mapping[str, str] | None = None) -> SparkSession:
    """Creates a Spark session with the format `redbox`; by default on all cores of this machine."""
    from redbox.pipeline.spark_session import session as make

    return make(master, conf)
