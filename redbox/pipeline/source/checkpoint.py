"""Reads the checkpoint of a query: how far Spark has committed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from redbox.errors import UsageError
from redbox.pipeline import files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def committed_offset(spark: SparkSession, checkpoint: str) -> Any | None:
    """The offset of a query's only source up to which Spark has committed; None before the first commit.

    Spark writes `offsets/N` before a micro-batch and `commits/N` after it. `offsets/N` holds a version, a line about
    the batch, and one line for each source.
    """
    names = files.list(spark, files.join(checkpoint, "commits"))
    committed = [int(name) for name in names if name.isdecimal()]
    if not committed:
        return None
    place = files.join(checkpoint, "offsets", str(max(committed)))
    version, _, *offsets = files.read_text(spark, place).splitlines()
    if version != "v1" or len(offsets) != 1:
        raise UsageError(f"{checkpoint} is not the checkpoint of a query with one source, in Spark's format v1")
    return json.loads(offsets[0])
