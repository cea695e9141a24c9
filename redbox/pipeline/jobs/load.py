"""load: files into a box."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from redbox.errors import UsageError
from redbox.pipeline.source.options import Address, WriteOptions
from redbox.pipeline.source.schema import SCHEMA
from redbox.pipeline.source.writer import PLACE, WRITABLE, check_columns, check_store, write_rows
from redbox.pipeline.spark_session import set_for
from redbox.pipeline.tasks import current_task, map_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS: Final = ("parquet", "json", "csv")
#: Files are split at the same positions everywhere: generated ids depend on it.
SPLIT_SETTINGS: Final = {
    "spark.sql.files.maxPartitionBytes": "33554432",
    "spark.sql.files.openCostInBytes": "4194304",
    "spark.sql.files.minPartitionNum": "1",
}
SHOWN: Final = 80  # characters of a row
_MALFORMED_ROW: Final = re.compile(r"\[MALFORMED_CSV_RECORD\] Malformed CSV record: (.*?) SQLSTATE: ", re.DOTALL)
_OTHER_HEADER: Final = "CSV header does not conform to the schema"
COUNTS: Final = ("put", "existing", "skipped", "rejected", "size")


class Loaded(msgspec.Struct):
    """Numbers of rows of a load, and the bytes of their payloads.

    `existing` were in the box already; for `skipped` rows another event holds the unique_key.
    """

    rows: int = 0
    put: int = 0
    existing: int = 0
    skipped: int = 0
    rejected: int = 0
    size: int = 0


def load(
    spark: SparkSession,
    at: Address,
    path: str,
    *,
    format: str | None = None,  # noqa: A002 - what Spark calls it
    columns: Mapping[str, str] | None = None,
    constants: Mapping[str, str] | None = None,
    job: str | None = None,
    on_conflict: str = "raise",
    rejects: str | None = None,
    durability: str = "server",
    dry_run: bool = False,
) -> Loaded:
    """Puts the rows of Parquet, JSON Lines or CSV files into a box.

    `columns` maps columns of events to columns of the files, `constants` to one value for all rows. Rows without an id
    get one that is derived from `job`, by default 'load' and the path, and from their content and position in the
    files. So a failed load is completed by running it again on the same files, here or on a cluster. A malformed row
    ends the load; it is not skipped, not even in part.
    """
    with _explained(path):
        files = read_files(spark, path, format)
        table = mapped(files, columns or {}, constants or {})
        check_columns(table.schema)
        if dry_run:
            return Loaded(rows=table.count())
        options = WriteOptions(at=at, job=job or f"load {path}", on_conflict=on_conflict, rejects=rejects,
                               durability=durability)  # fmt: skip
        check_store(options)
        placed = mapped(files, columns or {}, constants or {}, place=True)
        counted = map_arrow(placed, partial(_write, options), ", ".join(f"{name} long" for name in COUNTS))
        with set_for(spark, SPLIT_SETTINGS):
            total = counted.groupBy().sum(*COUNTS).first()
    done = dict(zip(COUNTS, (int(value or 0) for value in total or ()), strict=False))
    return Loaded(rows=sum(done[name] for name in COUNTS[:-1]), **done)


def _write(options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    done = write_rows(batches, options, options.job, current_task().partitionId())
    yield pa.RecordBatch.from_pydict({name: [getattr(done, name)] for name in COUNTS})


def read_files(spark: SparkSession, path: str, format: str | None) -> DataFrame:  # noqa: A002 - same
    """Files as a table; without a format, that of the file's name."""
    chosen = format or _format_of(path)
    if chosen not in FORMATS:
        raise UsageError(f"there is no format {chosen!r}; there are {', '.join(FORMATS)}")
    if chosen == "parquet":
        return spark.read.parquet(path)
    _check_lines(spark, path, chosen)
    return _read_csv(spark, path) if chosen == "csv" else spark.read.option("mode", "FAILFAST").json(path)


def _read_csv(spark: SparkSession, path: str) -> DataFrame:
    """Reads CSV with doubled quotes and line breaks in quotes: only then does Spark check the number of fields of each
    row. Each file is read by one task."""
    reader = spark.read.options(header=True, escape='"', multiLine=True, mode="FAILFAST")
    table = reader.csv(path)
    if len(table.inputFiles()) > 1:  # by default Spark reads the other files by position
        return reader.schema(table.schema).option("enforceSchema", False).csv(path)
    return table


def _check_lines(spark: SparkSession, path: str, format: str) -> None:  # noqa: A002 - same
    """Refuses what Spark would change or drop silently: bytes that are not UTF-8, and text after the first object of a
    text line."""
    from pyspark.sql import functions as f

    line = f.col("value")
    problem = f.when(~f.is_valid_utf8(line), "UTF-8")
    if format == "json":
        objects = f.json_array_length(f.concat(f.lit("["), line, f.lit("]")))
        is_one = line.rlike(r"^\s*([{\[]|$)") & f.coalesce(objects <= 1, f.lit(False))
        problem = problem.when(~is_one, "one JSON object")
    wrong = spark.read.text(path).select(line, problem.alias("problem")).where("problem IS NOT NULL").first()
    if wrong is not None:
        raise UsageError(f"{path}: a line is not {wrong['problem']}: {_shortened(wrong['value'])}")


@contextmanager
def _explained(path: str) -> Iterator[None]:
    """Reports a file that Spark cannot read in one sentence."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        text = str(error)
        if (row := _MALFORMED_ROW.search(text)) is not None:
            raise UsageError(
                f"{path}: a row does not have as many fields as the header: {_shortened(row[1])}"
            ) from error
        if _OTHER_HEADER in text:
            problem = "the CSV files there must all have the same header, with a name for each column"
            raise UsageError(f"{path}: {problem}") from error
        raise


def _shortened(text: str) -> str:
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}…")


def _format_of(path: str) -> str:
    ending = path.rstrip("/").rpartition(".")[2].lower()
    known = {"parquet": "parquet", "json": "json", "jsonl": "json", "ndjson": "json", "csv": "csv"}
    if ending not in known:
        raise UsageError(f"the name {path} does not show its format; give the format: {', '.join(FORMATS)}")
    return known[ending]


def mapped(
    table: DataFrame, columns: Mapping[str, str], constants: Mapping[str, str], *, place: bool = False
) -> DataFrame:
    """The table with the columns of events. A payload that is neither bytes nor text becomes JSON. With `place` there
    is one more column: a number for the file and the part of it that a row comes from."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import BinaryType, StringType

    for name in (*columns, *constants):
        if name not in WRITABLE:
            raise UsageError(f"{name!r} is not a column of events; there are {', '.join(WRITABLE)}")
    if twice := set(columns) & set(constants):
        raise UsageError(f"{twice.pop()!r} is given both by a column and as a constant")
    unmapped = {name: name for name in WRITABLE if name in table.columns and name not in (*columns, *constants)}
    made: dict[str, Any] = {
        name: f.lit(value).cast(SCHEMA[name].dataType) if name == "available_at" else f.lit(value)
        for name, value in constants.items()
    }
    for name, source in (unmapped | dict(columns)).items():
        if source not in table.columns:
            raise UsageError(f"there is no column {source!r} in the files; there are {', '.join(table.columns)}")
        kind, wanted = table.schema[source].dataType, SCHEMA[name].dataType
        column = f.col(f"`{source}`")
        if name == "payload" and not isinstance(kind, BinaryType | StringType):
            column = f.to_json(column) if kind.typeName() in ("struct", "map", "array") else column.cast("string")
            made.setdefault("content_type", f.lit("application/json"))
        elif kind != wanted and name not in ("payload", "headers", "metadata"):
            column = column.cast(wanted)
        elif name in ("headers", "metadata") and kind.typeName() == "struct":
            column = f.from_json(f.to_json(column), "map<string,string>")
        made[name] = column
    if place:
        file = table.metadataColumn("_metadata")
        made[PLACE] = f.xxhash64(file["file_path"], file["file_block_start"])
    return table.select(*[column.alias(name) for name, column in made.items()])
