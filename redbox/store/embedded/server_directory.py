"""The directory of an embedded server: its files and locks, and the address of its socket."""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass

from redbox.errors import EmbeddedServerFailed
from redbox.store.embedded import supervisor
from redbox.store.embedded.private_directory import PRIVATE_FILE

SOCKET_PATH_BYTES = 107 if sys.platform.startswith("linux") else 103


@dataclass(frozen=True)
class ServerDirectory:
    """A directory that was checked. The path is for messages and the socket; everything else uses the descriptor."""

    path: str
    directory: int
    binary: str


def open_file(place: ServerDirectory, name: str, flags: int = 0) -> int:
    return os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | flags, PRIVATE_FILE, dir_fd=place.directory)


def rename(place: ServerDirectory, old: str, new: str) -> None:
    os.replace(old, new, src_dir_fd=place.directory, dst_dir_fd=place.directory)


def log_path(path: str) -> str:
    return os.path.join(path, supervisor.LOG)


def try_lock(place: ServerDirectory, name: str, kind: int) -> int | None:
    file = open_file(place, name)
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BaseException as error:
        os.close(file)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return file


def is_locked(path: str, name: str) -> bool:
    try:
        file = os.open(os.path.join(path, name), os.O_RDONLY | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(file)


def is_still_there(users: int, place: ServerDirectory) -> bool:
    """Whether other processes find the same file: the directory may have been removed and made again."""
    try:
        found = os.stat(supervisor.USERS_LOCK, dir_fd=place.directory, follow_symlinks=False)
        return os.path.samestat(os.fstat(users), found)
    except FileNotFoundError:
        return False


def socket_address(path: str) -> str:
    """The path to connect to: the socket, or a short link to it where the path is too long for an address."""
    target = os.path.join(path, supervisor.SOCKET)
    if len(os.fsencode(target)) <= SOCKET_PATH_BYTES:
        return target
    name = hashlib.sha256(os.fsencode(target)).hexdigest()[:24]
    for temporary in (tempfile.gettempdir(), "/tmp"):  # noqa: S108 - trusted only once checked
        link = os.path.join(temporary, f"redbox-{os.geteuid()}", name)
        if len(os.fsencode(link)) <= SOCKET_PATH_BYTES:
            break
    else:
        raise EmbeddedServerFailed(f"{link} is too long for a unix socket; set TMPDIR to a shorter directory")
    _make_private(os.path.dirname(link))
    _point(link, target)
    return link


def _make_private(directory: str) -> None:
    """Makes a directory where every user may write; raises EmbeddedServerFailed if another user made it."""
    with suppress(FileExistsError):
        os.mkdir(directory, 0o700)
    found = os.lstat(directory)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise EmbeddedServerFailed(f"{directory} is not a private directory of yours; remove it, or set TMPDIR")


def _point(link: str, target: str) -> None:
    with suppress(OSError):
        if os.readlink(link) == target:
            return
    fresh = f"{link}.{os.getpid()}"
    with suppress(FileNotFoundError):
        os.unlink(fresh)
    os.symlink(target, fresh)
    os.replace(fresh, link)
