"""The one schema of the pipeline: what a box, an archive and a stream look like as a DataFrame."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from redbox.errors import UsageError

SCHEMA_VERSION: Final = 1

_TEXTS: Final = MapType(StringType(), StringType())
_ATTEMPT: Final = StructType(
    [
        StructField("at", TimestampType()),
        StructField("outcome", StringType()),
        StructField("by", StringType()),
        StructField("claim", LongType()),
        StructField("error", StringType()),
    ]
)
_COLUMNS: Final[dict[str, DataType]] = {
    "event_id": StringType(),
    "event_type": StringType(),
    "state": StringType(),
    "phase": StringType(),
    "payload": BinaryType(),
    "content_type": StringType(),
    "headers": _TEXTS,
    "metadata": _TEXTS,
    "partition_key": StringType(),
    "ordering_key": StringType(),
    "unique_key": StringType(),
    "unique_scope": StringType(),
    "created_at": TimestampType(),
    "available_at": TimestampType(),
    "attempts": IntegerType(),
    "excused": IntegerType(),
    "expiries": IntegerType(),
    "claim": LongType(),
    "last_error": StringType(),
    "claimed_at": TimestampType(),
    "claimed_by": StringType(),
    "lease_until": TimestampType(),
    "published_at": TimestampType(),
    "published_by": StringType(),
    "died_at": TimestampType(),
    "waiting": BooleanType(),
    "suspect": BooleanType(),
    "superseded_by": StringType(),
    "history": ArrayType(_ATTEMPT),
    "problem": StringType(),
    "schema_version": IntegerType(),
}

SCHEMA: Final = StructType([StructField(name, kind) for name, kind in _COLUMNS.items()])


def schema_of(columns: list[str] | None) -> StructType:
    """The schema, or the part of it with these columns, in the order given."""
    if columns is None:
        return SCHEMA
    unknown = [name for name in columns if name not in _COLUMNS]
    if unknown:
        raise UsageError(f"columns: there is no column {unknown[0]!r}; there are {', '.join(_COLUMNS)}")
    if len(set(columns)) != len(columns):
        raise UsageError("columns: a column is named twice")
    return StructType([SCHEMA[name] for name in columns])
