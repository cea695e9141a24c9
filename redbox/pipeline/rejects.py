"""Rows that could not be put, kept where a person can look at them and load them again."""

from __future__ import annotations

import hashlib
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from redbox.errors import UsageError

_TEXTS: Final = pa.map_(pa.string(), pa.string())
_SCHEMA: Final = pa.schema(
    [
        ("event_id", pa.string()),
        ("event_type", pa.string()),
        ("payload", pa.binary()),
        ("content_type", pa.string()),
        ("headers", _TEXTS),
        ("metadata", _TEXTS),
        ("partition_key", pa.string()),
        ("ordering_key", pa.string()),
        ("unique_key", pa.string()),
        ("unique_scope", pa.string()),
        ("available_at", pa.timestamp("us", tz="UTC")),
        ("rejected_field", pa.string()),
        ("rejected_because", pa.string()),
    ]
)


class Rejects:
    """The rejected rows of one task: one Parquet file, written when the task ends, the same when it is run again."""

    def __init__(self, path: str, job: str, partition: int) -> None:
        self._path, self._partition = path, partition
        self._name = f"rejects-{hashlib.sha256(job.encode()).hexdigest()[:12]}-{partition:05}.parquet"
        self._rows: list[dict[str, Any]] = []

    def add(self, row: dict[str, Any], field: str, because: str) -> None:
        kept: dict[str, Any] = {name: row.get(name) for name in _SCHEMA.names}
        if isinstance(kept["payload"], str):
            kept["payload"] = kept["payload"].encode()
        for name in ("headers", "metadata"):
            kept[name] = None if kept[name] is None else list(kept[name].items())
        self._rows.append({**kept, "rejected_field": field, "rejected_because": because})

    def close(self) -> None:
        if not self._rows:
            return
        try:
            system, directory = (
                fs.FileSystem.from_uri(self._path)
                if "://" in self._path
                else (fs.LocalFileSystem(), self._path.removeprefix("file:"))
            )
            system.create_dir(directory, recursive=True)
            part = f"{directory}/.{self._name}.part"
            pq.write_table(pa.Table.from_pylist(self._rows, _SCHEMA), part, filesystem=system)
            system.move(part, f"{directory}/{self._name}")
        except (OSError, pa.ArrowException) as error:
            raise UsageError(f"rejects: {self._path} cannot be written: {error}") from error
