"""The data source `redbox`: what `spark.read.format("redbox")` and its sisters find."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from redbox.errors import UsageError
from redbox.pipeline.source.drain import DrainReader, stream_options
from redbox.pipeline.source.follow import FollowReader, follow_options
from redbox.pipeline.source.options import Given, read_options
from redbox.pipeline.source.pushdown import PushingReader
from redbox.pipeline.source.reader import BoxReader
from redbox.pipeline.source.schema import check_schema, schema_of
from redbox.pipeline.source.writer import BoxStreamWriter, BoxWriter, write_options


class RedboxSource(DataSource):
    """A box as a table and as a stream, to read and to write."""

    @classmethod
    def name(cls) -> str:
        return "redbox"

    def schema(self) -> StructType:
        Given(self.options, "the format redbox").address()  # what is missing is told at once
        columns = self.options.get("columns")
        return schema_of(None if columns is None else [name.strip() for name in columns.split(",") if name.strip()])

    def reader(self, schema: StructType) -> DataSourceReader:
        check_schema(schema)
        options = read_options(self.options)
        return PushingReader(options, schema) if options.pushdown else BoxReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        check_schema(schema)
        mode = self.options.get("mode", "drain")
        if mode == "follow":
            return FollowReader(follow_options(self.options), schema)
        if mode != "drain":
            raise UsageError(f"option mode: use 'drain' or 'follow', not {mode!r}")
        return DrainReader(stream_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return BoxWriter(write_options(self.options, schema, overwrite=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        return BoxStreamWriter(write_options(self.options, schema, overwrite=overwrite), "job" in self.options)
