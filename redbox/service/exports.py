"""Files of exports, to be downloaded. They have no name, so none outlives the process that wrote it."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import suppress
from io import FileIO
from typing import Final

from redbox.errors import RedboxError

CHUNK: Final = 256 * 1024


class ExportFailed(RedboxError):
    """The file cannot be written."""


class ExportFile:
    """The file of one export, in the directory for temporary files. `size` is in bytes."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self.size = 0
        try:
            self._file = tempfile.TemporaryFile(prefix="redbox-export-")  # noqa: SIM115  # closed by `close`
        except OSError as error:
            raise _failed(error) from error

    def write(self, line: bytes) -> None:
        """Raises ExportFailed if the file is too large, or if there is no space for it."""
        if self.size + len(line) > self._most:
            raise ExportFailed(f"the export is larger than {self._most:,} bytes; narrow the filter")
        try:
            self._file.write(line)
        except OSError as error:
            raise _failed(error) from error
        self.size += len(line)

    def end(self) -> None:
        """Writes what is buffered. Raises ExportFailed."""
        try:
            self._file.flush()
        except OSError as error:
            raise _failed(error) from error

    def chunks(self) -> AsyncIterator[bytes]:
        """The content, also if the file is closed meanwhile."""
        return _read(os.fdopen(os.dup(self._file.fileno()), "rb", buffering=0))

    def close(self) -> None:
        """Gives up the file, and the space that it takes."""
        with suppress(OSError):  # what is buffered does not fit; the file is closed all the same
            self._file.close()


async def _read(file: FileIO) -> AsyncIterator[bytes]:
    at = 0
    with file:
        while chunk := await asyncio.to_thread(os.pread, file.fileno(), CHUNK, at):  # other readers have other places
            at += len(chunk)
            yield chunk


def _failed(error: OSError) -> ExportFailed:
    reason = os.strerror(error.errno).lower() if error.errno else str(error)
    return ExportFailed(
        f"the export cannot be written to {tempfile.gettempdir()}: {reason}; free space there, narrow the filter, or "
        "start the service with $TMPDIR set to another directory"
    )
