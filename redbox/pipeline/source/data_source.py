"""The data source `redbox`: the class behind read, write, readStream and writeStream of `format("redbox")`."""

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
from redbox.pipeline.source.drain import DrainReader
from redbox.pipeline.source.follow import FollowReader
from redbox.pipeline.source.options import (
    OptionParser,
    WriteOptions,
    drain_options,
    follow_options,
    read_options,
    write_options,
)
from redbox.pipeline.source.reader import BoxReader, PushdownReader
from redbox.pipeline.source.schema import check_schema, schema_of
from redbox.pipeline.source.writer import BoxStreamWriter, BoxWriter, check_columns, check_store


class RedboxSource(DataSource):
    """A box as a table and as a stream, to read and to write."""

    @classmethod
    def name(cls) -> str:
        return "redbox"

    def schema(self) -> StructType:
        OptionParser(self.options, "the format redbox").address()  # a missing option is reported at once
        columns = self.options.get("columns")
        return schema_of(None if columns is None else [name.strip() for name in columns.split(",") if name.strip()])

    def reader(self, schema: StructType) -> DataSourceReader:
        check_schema(schema)
        options = read_options(self.options)
        return PushdownReader(options, schema) if options.pushdown else BoxReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        check_schema(schema)
        mode = self.options.get("mode", "drain")
        if mode == "follow":
            return FollowReader(follow_options(self.options), schema)
        if mode != "drain":
            raise UsageError(f"option mode: use 'drain' or 'follow', not {mode!r}")
        return DrainReader(drain_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return BoxWriter(self._write_options(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        return BoxStreamWriter(self._write_options(schema, overwrite), "job" in self.options)

    def _write_options(self, schema: StructType, overwrite: bool) -> WriteOptions:
        if overwrite:
            raise UsageError('a box is never overwritten; use .mode("append")')
        options = write_options(self.options)
        check_columns(schema)
        check_store(options)
        return options
