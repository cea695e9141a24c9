"""The schema of the pipeline: the columns of a box, an archive and a stream as a DataFrame."""

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
    "seq": LongType(),
    "waiting": BooleanType(),
    "suspect": BooleanType(),
    "superseded_by": StringType(),
    "history": ArrayType(_ATTEMPT),
    "problem": StringType(),
    "schema_version": IntegerType(),
}

SCHEMA: Final = StructType([StructField(name, kind) for name, kind in _COLUMNS.items()])


def schema_of(columns: list[str] | None, where: str = "columns") -> StructType:
    """The schema, or only these columns of it, in this order. An error message starts with `where`."""
    if columns is None:
        return SCHEMA
    unknown = [name for name in columns if name not in _COLUMNS]
    if unknown:
        raise UsageError(f"{where}: there is no column {unknown[0]!r}; there are {', '.join(_COLUMNS)}")
    if len(set(columns)) != len(columns):
        raise UsageError(f"{where}: a column is named twice")
    return StructType([SCHEMA[name] for name in columns])


def check_schema(given: StructType) -> None:
    """Raises UsageError for a user's schema with other columns or types: Spark would fill them with nulls."""
    for field, known in zip(given, schema_of(given.fieldNames(), "schema"), strict=True):
        has, wants = known.dataType.simpleString(), field.dataType.simpleString()
        if has != wants:
            raise UsageError(f"schema: column {field.name!r} is {has}, not {wants}")
