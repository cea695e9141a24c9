"""How the jobs write and read Parquet: times that every reader understands, and memory bounded in bytes."""

from __future__ import annotations

from typing import Final

from redbox.settings import BATCH_BYTES

#: Times are INT64 microseconds in UTC. Spark's default is INT96, which has no statistics and in other readers no zone.
TIMES: Final = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
#: Settings of the session while an archive is written. Each open file holds a row group in memory.
WRITE_SETTINGS: Final = {**TIMES, "spark.sql.maxConcurrentOutputFileWriters": "32"}
#: Options of the writer. Payloads may be large: Parquet's default is to look at sizes after 100 rows, or 10,000.
WRITE_OPTIONS: Final = {
    "maxRecordsPerFile": "1000000",
    "parquet.block.size": str(32 * 1024 * 1024),
    "parquet.page.size.row.check.min": "1",
    "parquet.page.size.row.check.max": "16",
}
#: Settings of the session while an archive is read. By default Spark holds 4,096 rows at a time, however large. Turning
#: its vectorized reader off instead would break a plan that was made, and cached, while it was on.
READ_SETTINGS: Final = {
    "spark.sql.parquet.columnarReaderBatchSize": "16",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(BATCH_BYTES),
}
