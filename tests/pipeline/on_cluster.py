"""What runs on the cluster: archive, replay and drain, and where the tasks found redbox. Prints JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from redbox import pipeline
from redbox.pipeline.archive.job import archive, read_archive
from redbox.pipeline.jobs.replay import replay
from redbox.pipeline.jobs.streams import run_stream
from redbox.pipeline.source.options import Address
from redbox.pipeline.tasks import map_arrow


def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import redbox
    from redbox.store.scripts.registry import load

    for _ in batches:
        continue
    yield pa.RecordBatch.from_pydict({"file": [redbox.__file__], "script": [load("claim").text[:5]]})


def main(master: str, archive_of_redbox: str, url: str, box: str, directory: str) -> None:
    spark = pipeline.session(
        master, {"spark.submit.pyFiles": archive_of_redbox, "spark.cores.max": "2", "spark.executor.memory": "1g"}
    )
    at, told = Address(url, box), dict[str, Any]()
    found = map_arrow(spark.range(0, 20, 1, 4), where, "file string, script string").collect()
    told["redbox"] = sorted({row["file"] for row in found})
    told["scripts"] = sorted({row["script"] for row in found})
    told["executors"] = spark._jsc.sc().getExecutorMemoryStatus().size() - 1
    told["master"] = spark.sparkContext.master
    told["archived"] = archive(spark, at, f"{directory}/lake").removed
    told["replayed"] = replay(spark, at, f"{directory}/lake", where="event_type = 'user.0'").restored
    told["drained"] = run_stream(spark, at, {"stream": "lake", "partition_size": "10"}, f"{directory}/sink").rows
    told["in the lake"] = read_archive(spark, f"{directory}/lake").count()
    told["in the sink"] = sorted(row[0] for row in spark.read.parquet(f"{directory}/sink").select("event_id").collect())
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
