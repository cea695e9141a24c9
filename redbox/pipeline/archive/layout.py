"""The layout of an archive: which files belong to it, run by run.

    PATH/_redbox/archive.json           marks an archive, with its box and format
    PATH/_redbox/runs/RUN.json          one manifest per run: its verified files; readers use these and no others
    PATH/_redbox/removed/RUN.json       the removal of the run's events from Redis; missing while that is to be done
    PATH/data/run=RUN/date=.../event_type=.../*.parquet

A manifest is written atomically, after every file that it lists was read back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from redbox.errors import RedboxError, UsageError
from redbox.pipeline import files
from redbox.pipeline.source.schema import SCHEMA
from redbox.pipeline.spark_session import PARQUET_TIMES
from redbox.settings import BATCH_BYTES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT: Final = 1
HOME: Final = "_redbox"
#: Settings of the session while an archive is written. Each open file holds a row group in memory.
WRITE_SETTINGS: Final = {**PARQUET_TIMES, "spark.sql.maxConcurrentOutputFileWriters": "32"}
#: Options of the writer. Payloads may be large: by default Parquet checks sizes only after 100 rows, or 10,000.
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


class Marker(msgspec.Struct):
    """The file that marks an archive."""

    format: int
    box: str


class ArchiveFile(msgspec.Struct):
    """A data file of a run."""

    path: str  # relative to PATH
    rows: int
    bytes: int


class Manifest(msgspec.Struct):
    """One run: its data files and their checksum."""

    format: int
    run: str
    box: str
    until: int  # ms: events that were terminal by then
    keep: bool  # its events stay in Redis
    rows: int
    checksum: str
    files: list[ArchiveFile]


class Removal(msgspec.Struct):
    """The removal of a run's events from Redis. `left` counts events that changed meanwhile, or block their lines."""

    run: str
    kept: bool
    removed: int
    left: int


class Archive:
    """An archive at a path that Spark can write."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.spark, self.path = spark, path.rstrip("/") or "/"

    def within(self, *names: str) -> str:
        return files.join(self.path, *names)

    def open(self, box: str, *, create: bool) -> bool:
        """Checks that this is an archive of the box in a known format; with `create`, makes one at an empty path.
        Returns False if there is none."""
        marker = self.within(HOME, "archive.json")
        if files.exists(self.spark, marker):
            self._check(msgspec.json.decode(files.read_text(self.spark, marker), type=Marker), box)
        elif not self._is_empty():
            raise UsageError(f"{self.path} is not empty and is not an archive of redbox; choose another path")
        elif create:
            text = msgspec.json.encode(Marker(FORMAT, box)).decode()
            files.make_directory(self.spark, self.path)
            try:
                files.write_text(self.spark, marker, text, overwrite=False)
            except RedboxError:  # the first run of another box may have taken the path just now
                if not files.exists(self.spark, marker):
                    raise
                self._check(msgspec.json.decode(files.read_text(self.spark, marker), type=Marker), box)
        else:
            return False
        return True

    def _is_empty(self) -> bool:
        """Whether there is nothing, or only partial marker files left by killed processes."""
        if any(name != HOME for name in files.list(self.spark, self.path)):
            return False
        there = files.list(self.spark, self.within(HOME))
        return all(name.startswith(".archive.json.") and name.endswith(".part") for name in there)

    def _check(self, marker: Marker, box: str) -> None:
        if marker.format > FORMAT:
            raise RedboxError(
                f"the archive at {self.path} was written by a newer redbox (format {marker.format}, this one knows up "
                f"to {FORMAT}); upgrade this redbox"
            )
        if box and marker.box != box:
            raise UsageError(f"{self.path} is the archive of box {marker.box!r}, not of {box!r}; choose another path")

    # --- runs ----------------------------------------------------------------------------------------------------

    def manifests(self) -> list[Manifest]:
        """The manifests of all completed runs, the oldest first."""
        read = [msgspec.json.decode(files.read_text(self.spark, path), type=Manifest) for path in self._texts("runs")]
        newer = [manifest.format for manifest in read if manifest.format > FORMAT]
        if newer:
            raise RedboxError(f"the archive at {self.path} has runs of a newer redbox (format {newer[0]}); upgrade")
        return read

    def removals(self) -> dict[str, Removal]:
        read = [msgspec.json.decode(files.read_text(self.spark, path), type=Removal) for path in self._texts("removed")]
        return {removal.run: removal for removal in read}

    def _texts(self, directory: str) -> list[str]:
        """The paths of the JSON files in a directory, without partial files left by killed processes."""
        names = files.list(self.spark, self.within(HOME, directory))
        return [
            self.within(HOME, directory, name) for name in names if name.endswith(".json") and not name.startswith(".")
        ]

    def write_manifest(self, manifest: Manifest) -> None:
        """Completes the run."""
        text = msgspec.json.format(msgspec.json.encode(manifest)).decode()
        files.write_text(self.spark, self.within(HOME, "runs", f"{manifest.run}.json"), text, overwrite=False)

    def write_removal(self, removal: Removal) -> None:
        text = msgspec.json.encode(removal).decode()
        files.write_text(self.spark, self.within(HOME, "removed", f"{removal.run}.json"), text)

    def data_of(self, run: str) -> str:
        return self.within("data", f"run={run}")

    def clean(self) -> int:
        """Removes the files of runs that were never completed; returns the number of runs."""
        known = {f"run={manifest.run}" for manifest in self.manifests()}
        dead = [name for name in files.list(self.spark, self.within("data")) if name not in known]
        for name in dead:
            files.delete(self.spark, self.within("data", name))
        return len(dead)

    # --- reading -------------------------------------------------------------------------------------------------

    def read(self, manifests: list[Manifest]) -> DataFrame:
        """The events of these runs, with the columns of a box, `run` and `date`."""
        return self.read_files([file.path for manifest in manifests for file in manifest.files])

    def read_files(self, paths: list[str]) -> DataFrame:
        schema = f"{SCHEMA.toDDL()}, run string, date string"
        if not paths:
            return self.spark.createDataFrame([], schema)
        reader = self.spark.read.schema(schema).option("basePath", self.within("data"))
        table = reader.parquet(*[self.within(path) for path in paths])
        return table.select(*SCHEMA.fieldNames(), "run", "date")

    def list_data(self, run: str) -> dict[str, int]:
        """The data files of a run, relative to PATH, with their sizes in bytes."""
        found: dict[str, int] = {}
        self._list(f"data/run={run}", found)
        return found

    def _list(self, directory: str, found: dict[str, int]) -> None:
        for name, size in files.sizes(self.spark, self.within(directory)).items():
            below = f"{directory}/{name}"
            if size is None:
                self._list(below, found)
            elif name.endswith(".parquet"):
                found[below] = size


def read_archive(spark: SparkSession, path: str, *, box: str = "") -> DataFrame:
    """The events of an archive, as its manifests list them, with the columns of a box, `run` and `date`."""
    archive = Archive(spark, path)
    if not archive.open(box, create=False):
        raise UsageError(f"there is no archive at {path}; `redbox pipeline archive --to` makes one")
    return archive.read(archive.manifests())


def identities(table: Any) -> Any:
    """The columns that identify a row of an archive, also if an event was archived twice."""
    return table.select("event_id", "claim")
