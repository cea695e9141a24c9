"""Files of exported events, which exist only when they are complete."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

import msgspec

from redbox.errors import RedboxError


class ExportedEvent(msgspec.Struct):
    """What is read of an exported line. With a `problem`, the line is no copy of the event."""

    event_id: str
    number: int
    problem: str | None = None


decode_line: Final = msgspec.json.Decoder(ExportedEvent).decode


async def readable_lines(lines: AsyncIterator[bytes], skip: Callable[[str, str], None]) -> AsyncIterator[bytes]:
    """The lines that `redbox put --many` accepts. `skip` gets the id and the problem of each other event."""
    async for line in lines:
        event = decode_line(line)
        if event.problem is None:
            yield line
        else:
            skip(event.event_id, event.problem)


async def write_export(
    lines: AsyncIterator[bytes], path: str, *, replace: bool = False, progress: Callable[[int], None] | None = None
) -> int:
    """Writes the lines and returns how many there were; without any, there is no file. Only its owner can read it.

    The file is on the disk when this returns. One that exists is left as it is, and RedboxError raised, unless
    `replace`.
    """
    count = 0
    with _new_file(Path(path), replace) as file:
        async for line in lines:
            file.write(line)
            count += 1
            if progress is not None:
                progress(count)
    return count


def read_lines(path: str) -> Iterator[bytes]:
    """The lines of an export."""
    with open(path, "rb") as file:
        yield from file


@contextmanager
def _new_file(path: Path, replace: bool) -> Iterator[IO[bytes]]:
    """A file that gets its name when the block has ended without an error, and if something was written."""
    if not replace and path.exists():
        raise _exists(path)
    if not path.parent.is_dir():
        raise RedboxError(f"cannot write {path}: there is no directory {path.parent}")
    number, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(number, "wb") as file:
            yield file
            file.flush()
            os.fsync(number)
            written = file.tell()
        if written:
            _give_name(temporary, path, replace)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)


def _give_name(temporary: str, path: Path, replace: bool) -> None:
    if replace:
        os.replace(temporary, path)
    else:
        try:
            _rename_to_new(temporary, path)
        except FileExistsError:
            raise _exists(path) from None
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _rename_to_new(temporary: str, path: Path) -> None:
    """Renames a file, and never replaces another one. Raises FileExistsError."""
    try:
        os.link(temporary, path)  # unlike a rename, it never replaces a file
    except FileExistsError:
        raise
    except OSError:  # as on file systems without hard links
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        try:
            os.replace(temporary, path)  # the empty file of the line above
        except OSError:
            os.unlink(path)
            raise


def _exists(path: Path) -> RedboxError:
    return RedboxError(f"{path} exists; choose another file, since it may be the only copy of dropped events")
