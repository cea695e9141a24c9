"""The archive on disk: which files belong to it, run by run.

    PATH/_redbox/archive.json           says that this is an archive, of which box, in which format
    PATH/_redbox/runs/RUN.json          one manifest per run: its files, verified; readers use these and no others
    PATH/_redbox/removed/RUN.json       what became of the run's events in Redis; without it, that is still to be done
    PATH/data/run=RUN/date=.../event_type=.../*.parquet

A manifest appears whole or not at all, after everything that it lists was read back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from redbox.errors import RedboxError, UsageError
from redbox.pipeline import files
from redbox.pipeline.source.schema import SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT: Final = 1
HOME: Final = "_redbox"


class Marker(msgspec.Struct):
    """What an archive says of itself."""

    format: int
    box: str


class ArchiveFile(msgspec.Struct):
    path: str  # below PATH
    rows: int
    bytes: int


class Manifest(msgspec.Struct):
    """One run: what it wrote, and the checksum of it."""

    format: int
    run: str
    box: str
    until: int  # ms: what was terminal by then
    keep: bool  # its events are to stay in Redis
    rows: int
    checksum: str
    files: list[ArchiveFile]


class Removal(msgspec.Struct):
    """What became in Redis of the events of a run. `left`: those that changed meanwhile, or block their lines."""

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
        """Checks that this is an archive of the box that this version can read; makes one of an empty path if told to.
        False when there is none."""
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
            except RedboxError:  # another box's first run may have taken the path in this moment
                if not files.exists(self.spark, marker):
                    raise
                self._check(msgspec.json.decode(files.read_text(self.spark, marker), type=Marker), box)
        else:
            return False
        return True

    def _is_empty(self) -> bool:
        """Nothing is there, or only partial marker files left by killed processes."""
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
        """Every run that was completed, the oldest first."""
        read = [msgspec.json.decode(files.read_text(self.spark, path), type=Manifest) for path in self._texts("runs")]
        newer = [manifest.format for manifest in read if manifest.format > FORMAT]
        if newer:
            raise RedboxError(f"the archive at {self.path} has runs of a newer redbox (format {newer[0]}); upgrade")
        return read

    def removals(self) -> dict[str, Removal]:
        read = [msgspec.json.decode(files.read_text(self.spark, path), type=Removal) for path in self._texts("removed")]
        return {removal.run: removal for removal in read}

    def _texts(self, directory: str) -> list[str]:
        """The small files there; not what a kill left of one."""
        names = files.list(self.spark, self.within(HOME, directory))
        return [
            self.within(HOME, directory, name) for name in names if name.endswith(".json") and not name.startswith(".")
        ]

    def write_manifest(self, manifest: Manifest) -> None:
        """The run counts from here on."""
        text = msgspec.json.format(msgspec.json.encode(manifest)).decode()
        files.write_text(self.spark, self.within(HOME, "runs", f"{manifest.run}.json"), text, overwrite=False)

    def write_removal(self, removal: Removal) -> None:
        text = msgspec.json.encode(removal).decode()
        files.write_text(self.spark, self.within(HOME, "removed", f"{removal.run}.json"), text)

    def data_of(self, run: str) -> str:
        return self.within("data", f"run={run}")

    def clean(self) -> int:
        """Removes what runs left behind that were never completed; how many."""
        known = {f"run={manifest.run}" for manifest in self.manifests()}
        dead = [name for name in files.list(self.spark, self.within("data")) if name not in known]
        for name in dead:
            files.delete(self.spark, self.within("data", name))
        return len(dead)

    # --- reading -------------------------------------------------------------------------------------------------

    def read(self, manifests: list[Manifest]) -> DataFrame:
        """The events of these runs: the pipeline's schema, and `run` and `date`."""
        return self.read_files([file.path for manifest in manifests for file in manifest.files])

    def read_files(self, paths: list[str]) -> DataFrame:
        schema = f"{SCHEMA.toDDL()}, run string, date string"
        if not paths:
            return self.spark.createDataFrame([], schema)
        reader = self.spark.read.schema(schema).option("basePath", self.within("data"))
        table = reader.parquet(*[self.within(path) for path in paths])
        return table.select(*SCHEMA.fieldNames(), "run", "date")

    def list_data(self, run: str) -> dict[str, int]:
        """The data files of a run, below PATH, with their sizes."""
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
    """The events of an archive, as its manifests list them: the pipeline's schema, and `run` and `date`."""
    archive = Archive(spark, path)
    if not archive.open(box, create=False):
        raise UsageError(f"there is no archive at {path}; `redbox pipeline archive --to` makes one")
    return archive.read(archive.manifests())


def identities(table: Any) -> Any:
    """What tells two archived lives of an event apart."""
    return table.select("event_id", "claim")
