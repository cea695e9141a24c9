"""Checks that the directory of an embedded server, its files and the server itself belong to this user.

A user with write access to the directory could put a symbolic link where the server writes a file, or run a server of
their own where events are sent. The directory is opened once and used through its descriptor, so that a user with write
access to a directory above it cannot exchange it between the check and the use.
"""

from __future__ import annotations

import os
import re
import socket
import stat
import struct
import sys
from contextlib import suppress

from redbox.errors import UntrustedStore
from redbox.store.embedded import supervisor

ROOT = 0
PRIVATE_DIRECTORY = 0o700
PRIVATE_FILE = 0o600
OTHERS = 0o077  # what group and others may do
OTHERS_WRITE = 0o022

DATA = "appendonlydir"
OLD_LOG = f"{supervisor.LOG}.1"
_SOCKETS = frozenset({supervisor.SOCKET, supervisor.STALE_SOCKET})
_FILES = frozenset(
    {
        supervisor.START_LOCK,
        supervisor.USERS_LOCK,
        supervisor.SUPERVISOR_LOCK,
        supervisor.SERVER_LOCK,
        supervisor.PID_FILE,
        supervisor.LOG,
        OLD_LOG,
        "appendonly.aof",  # the server takes over what a version before its seventh left
        "dump.rdb",
    }
)
_TEMPORARY = re.compile(r"temp-.*\.(aof|rdb)")

_DARWIN_SOL_LOCAL, _DARWIN_LOCAL_PEERCRED = 0, 1  # also FreeBSD's; `struct xucred` is smaller than this:
_XUCRED_BYTES = 256


def open_directory(path: str) -> int:
    """Makes the directory if there is none, and opens it; raises UntrustedStore unless this user owns it and its files.

    Removes the permissions of other users from the files, and from a directory that is empty or that redbox has used
    before.
    """
    os.makedirs(path, mode=PRIVATE_DIRECTORY, exist_ok=True)
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        _check_directory(directory, path)
        _check_entries(directory, path)
    except BaseException:
        os.close(directory)
        raise
    return directory


def check_link(directory: str) -> None:
    """Raises UntrustedStore for a link that another user has made in a directory where others may write.

    Linux does the same for sticky directories where fs.protected_symlinks is set. Other links are followed: they were
    made by the owner of the directory in which they are.
    """
    try:
        found = os.lstat(directory.rstrip("/") or "/")  # with a slash at its end, a link would be followed here
        parent = os.stat(os.path.dirname(os.path.abspath(directory)))
    except (OSError, ValueError):  # no such directory yet, or none that can exist
        return
    shared = parent.st_mode & OTHERS_WRITE and found.st_uid != parent.st_uid
    if stat.S_ISLNK(found.st_mode) and shared and not is_trusted(found.st_uid):
        raise UntrustedStore(
            f"{directory} is a symbolic link that {describe_user(found.st_uid)} has made; name another directory"
        )


def check_peer(connection: socket.socket, path: str) -> None:
    """Raises UntrustedStore unless the server on this unix socket runs as this user, or as root."""
    user = _peer(connection)
    if user is None:  # this platform does not report it
        user = os.stat(path).st_uid
    if not is_trusted(user):
        raise UntrustedStore(
            f"the server on {path} runs as {describe_user(user)}, and nothing was sent to it; name another directory"
        )


def is_trusted(user: int) -> bool:
    """Whether it is this user, or root, who can read everything anyway."""
    return user in (os.geteuid(), ROOT)


def describe_user(user: int) -> str:
    """The user by name and number; in a container there often is no name."""
    import pwd  # not on every platform that has boxes

    with suppress(KeyError):
        return f"user {pwd.getpwuid(user).pw_name} ({user})"
    return f"user {user}"


# --- the directory ---------------------------------------------------------------------------------------------


def _check_directory(directory: int, path: str) -> None:
    found = os.fstat(directory)
    if found.st_uid != os.geteuid():  # root too: the owner could make it write anywhere
        raise UntrustedStore(
            f"{path} belongs to {describe_user(found.st_uid)}, and this process runs as "
            f"{describe_user(os.geteuid())}; run it as the owner, or name a directory of your own, such as a new one"
        )
    if not found.st_mode & OTHERS_WRITE:
        return
    if _is_ours_to_change(directory):
        with suppress(OSError):
            os.fchmod(directory, stat.S_IMODE(found.st_mode) & ~OTHERS_WRITE)
    if os.fstat(directory).st_mode & OTHERS_WRITE:
        raise UntrustedStore(f"other users may write into {path}; run chmod go-w {path}, or name another directory")


def _is_ours_to_change(directory: int) -> bool:
    """Whether only redbox uses the directory: it is empty, or redbox has used it before."""
    try:
        lock = os.stat(supervisor.USERS_LOCK, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return not os.listdir(directory)
    return lock.st_uid == os.geteuid()


# --- its entries -----------------------------------------------------------------------------------------------


def _check_entries(directory: int, path: str) -> None:
    for name in os.listdir(directory):
        if name in _SOCKETS:
            _check_entry(directory, path, name, stat.S_IFSOCK)
        elif name in _FILES or _TEMPORARY.fullmatch(name):
            _check_entry(directory, path, name, stat.S_IFREG)
        elif name == DATA and _check_entry(directory, path, name, stat.S_IFDIR):
            data = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
            try:
                for file in os.listdir(data):
                    _check_entry(data, os.path.join(path, name), file, stat.S_IFREG)
            finally:
                os.close(data)


def _check_entry(directory: int, path: str, name: str, kind: int) -> bool:
    """Checks one entry and removes the permissions of others; False if it is gone, as files of a running server."""
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    entry = os.path.join(path, name)
    if stat.S_ISLNK(found.st_mode):
        raise UntrustedStore(f"{entry} is a symbolic link, which redbox does not follow; remove it")
    if found.st_uid != os.geteuid():
        raise UntrustedStore(
            f"{entry} belongs to {describe_user(found.st_uid)}, and this process runs as "
            f"{describe_user(os.geteuid())}; give it to this user with chown, or name another directory"
        )
    if stat.S_IFMT(found.st_mode) != kind:
        raise UntrustedStore(f"{entry} is not a file of redbox; remove it")
    if kind != stat.S_IFSOCK and found.st_mode & OTHERS:  # the server sets the mode of its socket
        return _make_private(directory, entry, name)
    return True


def _make_private(directory: int, entry: str, name: str) -> bool:
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    except FileNotFoundError:
        return False
    try:
        with suppress(OSError):
            os.fchmod(file, stat.S_IMODE(os.fstat(file).st_mode) & ~OTHERS)
        if os.fstat(file).st_mode & OTHERS_WRITE:
            raise UntrustedStore(f"other users may write to {entry}; run chmod go-w {entry}, or name another directory")
    finally:
        os.close(file)
    return True


# --- the server ------------------------------------------------------------------------------------------------


def _peer(connection: socket.socket) -> int | None:
    """The user that the other end of a unix socket ran as when it began to listen; None where the platform does not
    report it."""
    if sys.platform.startswith("linux"):
        credentials = struct.Struct("iII")  # pid, uid, gid
        answer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size)
        return int(credentials.unpack(answer)[1])
    if sys.platform.startswith(("darwin", "freebsd")):
        answer = connection.getsockopt(_DARWIN_SOL_LOCAL, _DARWIN_LOCAL_PEERCRED, _XUCRED_BYTES)
        return int(struct.unpack_from("=II", answer)[1])  # version, uid, and groups after them
    return None
