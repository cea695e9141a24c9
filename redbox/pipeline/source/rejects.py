"""Rejected rows, in Parquet files that a person can look at and load again."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from redbox.errors import UsageError

GROUP_ROWS: Final = 1000
GROUP_BYTES: Final = 8 * 1024 * 1024
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
    """The rejected rows of one task, in one Parquet file.

    The file appears when the task has ended. A task that is run again replaces it, or removes it if nothing is rejected
    any more.
    """

    def __init__(self, path: str, job: str, partition: int) -> None:
        self._path = path
        self._name = f"rejects-{hashlib.sha256(job.encode()).hexdigest()[:12]}-{partition:05}.parquet"
        self._part = f".{self._name}.{uuid.uuid4().hex}.part"  # another attempt may be running
        self._rows: list[dict[str, Any]] = []
        self._size = 0
        self._place: tuple[fs.FileSystem, str] | None = None
        self._writer: pq.ParquetWriter | None = None

    def add(self, row: dict[str, Any], field: str, because: str) -> None:
        kept: dict[str, Any] = {name: row.get(name) for name in _SCHEMA.names}
        if isinstance(kept["payload"], str):
            kept["payload"] = kept["payload"].encode(errors="replace")
        for name in ("headers", "metadata"):
            kept[name] = None if kept[name] is None else list(kept[name].items())
        self._rows.append({**kept, "rejected_field": field, "rejected_because": because})
        self._size += len(kept["payload"] or b"")
        if len(self._rows) >= GROUP_ROWS or self._size >= GROUP_BYTES:
            with self._explained():
                self._flush()

    def close(self) -> None:
        """Moves the finished file to its final name."""
        with self._explained():
            if self._rows:
                self._flush()
            system, directory = self._where()
            final = f"{directory}/{self._name}"
            if self._writer is not None:
                self._writer.close()
                system.move(f"{directory}/{self._part}", final)
            elif system.get_file_info(final).type == fs.FileType.File:
                system.delete_file(final)

    def abandon(self) -> None:
        """Removes the unfinished file of a task that failed."""
        if self._writer is not None:
            with suppress(OSError, pa.ArrowException):
                self._writer.close()
                system, directory = self._where()
                system.delete_file(f"{directory}/{self._part}")

    def _flush(self) -> None:
        if self._writer is None:
            system, directory = self._where()
            if isinstance(system, fs.LocalFileSystem):
                _make_private(directory, self._part)
            else:
                system.create_dir(directory, recursive=True)
            self._writer = pq.ParquetWriter(f"{directory}/{self._part}", _SCHEMA, filesystem=system)
        self._writer.write_table(pa.Table.from_pylist(self._rows, _SCHEMA))
        self._rows, self._size = [], 0

    def _where(self) -> tuple[fs.FileSystem, str]:
        if self._place is None:
            self._place = _find(self._path)
        return self._place

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise UsageError(f"rejects: {self._path} cannot be written: {error}") from error


def _make_private(directory: str, name: str) -> None:
    """Makes an empty file that only this user may read; likewise the directory, if it is new."""
    os.makedirs(directory, mode=0o700, exist_ok=True)
    os.close(os.open(os.path.join(directory, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def check_path(path: str) -> None:
    """Raises UsageError if the tasks cannot use the file system of a path."""
    try:
        _find(path)
    except pa.ArrowInvalid:
        raise UsageError(
            f"option rejects: {path!r} is not a location that pyarrow knows; use a path, or file://, s3://, gs:// or hdfs://"
        ) from None
    except (OSError, pa.ArrowException) as error:
        raise UsageError(f"option rejects: {path} cannot be used: {str(error).partition(chr(10))[0]}") from error


def _find(path: str) -> tuple[fs.FileSystem, str]:
    if "://" in path:
        system, directory = fs.FileSystem.from_uri(path)
    else:
        system, directory = fs.LocalFileSystem(), path.removeprefix("file:")
    return system, directory.rstrip("/")
