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
    """Makes the format `redbox` known to a session, and its sentence the last line of an error that Spark raises."""
    from redbox.pipeline.source.data_source import RedboxSource
    from redbox.pipeline.source.last_line import put_ours_last
    from redbox.pipeline.spark_session import active

    put_ours_last()
    with active(spark):
        spark.dataSource.register(RedboxSource)


def session(master: str | None = None, conf: Mapping[str, str] | None = None) -> SparkSession:
    """A Spark session that knows the format `redbox`; by default on all cores of this machine."""
    from redbox.pipeline.spark_session import session as make

    return make(master, conf)
