"""Keeps one embedded server running for exactly as long as some process uses its directory.

It is a process of its own because no user can do this: the last user may be killed, and a killed process cannot end
the server. Every user holds a shared lock on `users.lock`; this process waits for the exclusive one, which the kernel
grants when the last user has ended, in whatever way. It starts as a script, enters the directory through the
descriptor that the user has checked, and imports little, because a user is waiting for it.

The locks, all flock(2), none of which survives the process that holds it:

    start.lock       exclusive   a user, while it joins or starts
    users.lock       shared      every user; exclusive: a supervisor that is shutting down
    supervisor.lock  exclusive   the supervisor; taken by the user that starts it, and inherited
    server.lock      exclusive   the server itself, which inherits it without knowing: as long as it is held, a
                                 second server would write into the same files
"""

from __future__ import annotations

import _thread
import fcntl
import os
import signal
import sys
import time

TYPE_CHECKING = False  # a type checker takes it for typing's own, which is slow to import
if TYPE_CHECKING:
    from collections.abc import Callable

START_LOCK = "start.lock"
USERS_LOCK = "users.lock"
SUPERVISOR_LOCK = "supervisor.lock"
SERVER_LOCK = "server.lock"
SOCKET = "server.sock"
STALE_SOCKET = "stale.sock"
PID_FILE = "server.pid"
LOG = "server.log"

#: An acknowledged write is on the disk: the append-only file is synced before the reply is sent.
CONFIG = {
    "port": "0",
    "unixsocket": SOCKET,  # relative, so that a long directory does not exceed what a socket address can hold
    "unixsocketperm": "700",
    "appendonly": "yes",
    "appendfsync": "always",
    "no-appendfsync-on-rewrite": "no",
    "save": "",
    "rdbcompression": "no",  # for the rewritten append-only file: the rest of it is not compressed either
    "maxmemory-policy": "noeviction",
    "daemonize": "no",
    "dir": ".",
    "pidfile": PID_FILE,
    "logfile": LOG,
}

#: The server is built on libc's allocator, and a script frees more at once than that keeps at hand by default: with
#: more, claims and settlements cost a quarter less, for some 25 MB.
ALLOCATOR = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=20000"}

CANNOT_RUN = "supervisor: cannot run"  # start_failures.py looks for it in the log
GRACE_SECONDS = 5  # for a server that was asked to end; killing it after that loses only unacknowledged writes
POLL_SECONDS = 0.01

_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_WAITED_FOR = (signal.SIGCHLD, signal.SIGALRM, *_ENDING)
_PR_SET_PDEATHSIG = 1


def supervise(binary: str, supervisor_lock: int) -> None:
    """Runs the server until it ends by itself or the last user has ended."""
    os.set_inheritable(supervisor_lock, False)
    os.umask(0o077)
    _note_pid(supervisor_lock)
    # Waited for with sigwait rather than handled: a handler can run just before a blocking call, and be lost on it.
    for number in _WAITED_FOR:
        signal.signal(number, _ignore)
    signal.pthread_sigmask(signal.SIG_SETMASK, _WAITED_FOR)

    server_lock = _end_stale_server()
    if server_lock is None:
        _say("an earlier server does not end; end it by hand")
        return
    for name in (STALE_SOCKET, PID_FILE):  # the server would write into a pid file that has a second name
        if os.path.lexists(name):
            os.unlink(name)
    server = _start(binary, server_lock)
    os.close(server_lock)  # the server holds it now
    _thread.start_new_thread(_outlast_users, ())

    asked_to_end = False
    while True:
        got = signal.sigwait(_WAITED_FOR)
        if got == signal.SIGCHLD:
            pid, status = os.waitpid(server, os.WNOHANG)
            if pid:
                if not asked_to_end:
                    _say(f"the server ended by itself ({_how(status)})")
                return
        elif got == signal.SIGALRM:
            os.kill(server, signal.SIGKILL)
        elif not asked_to_end:
            asked_to_end = True
            os.kill(server, signal.SIGTERM)
            signal.alarm(GRACE_SECONDS)


def _outlast_users() -> None:
    """Waits for the end of the last user, then has the main thread end the server.

    The lock stays until this process exits: a user that arrives meanwhile waits for it, instead of joining a server
    that is about to end.
    """
    try:
        fcntl.flock(_open(USERS_LOCK), fcntl.LOCK_EX)
    finally:
        os.kill(os.getpid(), signal.SIGTERM)


# --- the server ------------------------------------------------------------------------------------------------


def _start(binary: str, server_lock: int) -> int:
    arguments = [binary]
    for name, value in CONFIG.items():
        arguments += [f"--{name}", value]
    die_with_parent = _die_with_parent()
    supervisor = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        if die_with_parent is not None:
            die_with_parent(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
            if os.getppid() != supervisor:  # it died before it could have been noticed
                os._exit(1)
        os.set_inheritable(server_lock, True)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execve(binary, arguments, {**ALLOCATOR, **os.environ})  # noqa: S606 - a shell would be one more process
    except OSError as error:
        os.write(2, f"{CANNOT_RUN} {binary}: {error.strerror}\n".encode(errors="surrogateescape"))
    finally:
        os._exit(127)


def _die_with_parent() -> Callable[..., object] | None:
    """prctl(2), where there is one: it makes the kernel end the server when this process is killed.

    Without it the server stays behind, and the next supervisor ends it.
    """
    if not sys.platform.startswith("linux"):
        return None
    try:
        import ctypes

        prctl: Callable[..., object] = ctypes.CDLL(None).prctl
        return prctl
    except (ImportError, OSError, AttributeError):
        return None


# --- a server that a killed supervisor left behind -------------------------------------------------------------


def _end_stale_server() -> int | None:
    """Takes `server.lock`; ends its holder, first gently and then by force. None when that fails.

    All steps are safe for the data: the server syncs before it replies, so even a killed one lost nothing that it
    had acknowledged.
    """
    lock = _open(SERVER_LOCK)
    # The first step only waits: on Linux the kernel has sent the server a signal already.
    for end, seconds in ((None, 0.3), (_ask, 2.0), (_terminate, 2.0), (_kill, 2.0)):
        if end is not None:
            end()
        deadline = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return lock
            except BlockingIOError:
                if time.monotonic() > deadline:
                    break
                time.sleep(POLL_SECONDS)
    return None


def _ask() -> None:
    """SHUTDOWN NOSAVE: flushes and syncs the append-only file, and is the one form a busy server still takes."""
    import socket  # slow to import, and hardly ever needed

    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(1.0)
            connection.connect(STALE_SOCKET)
            connection.sendall(b"SHUTDOWN NOSAVE\r\n")
            connection.recv(1)  # nothing comes but the end of the connection
    except OSError:
        pass


def _terminate() -> None:
    _signal_stale(signal.SIGTERM)


def _kill() -> None:
    _signal_stale(signal.SIGKILL)


def _signal_stale(number: signal.Signals) -> None:
    try:
        with open(PID_FILE) as file:
            pid = int(file.read())
        if pid > 1 and _works_here(pid):
            os.kill(pid, number)
    except (OSError, ValueError):
        pass


def _works_here(pid: int) -> bool:
    """Whether this is our server: a pid file can outlive its process, and the number can go to another one."""
    if sys.platform.startswith("linux"):
        program = os.path.basename(os.readlink(f"/proc/{pid}/exe"))  # " (deleted)" follows it after an upgrade
        return program.startswith("valkey-server") and os.path.samefile(f"/proc/{pid}/cwd", ".")
    import subprocess

    question = ["lsof", "-a", "-p", str(pid), "-d", "cwd", "-c", "valkey", "-Fn"]
    listing = subprocess.run(question, capture_output=True, text=True, check=False)  # noqa: S603 - only a number varies
    return f"n{os.path.realpath('.')}" in listing.stdout.splitlines()


# --- files and log ---------------------------------------------------------------------------------------------


def _ignore(_number: int, _frame: object) -> None:
    """Replaces the default, which for SIGCHLD is to discard the signal."""


def _open(name: str) -> int:
    return os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def _note_pid(lock: int) -> None:
    if os.fstat(lock).st_nlink > 1:  # it may belong to another program too
        return
    try:
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    except OSError:  # a full disk; the number is for people only
        pass


def _how(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"exit code {code}" if code >= 0 else f"signal {-code}"


def _say(message: str) -> None:
    try:  # noqa: SIM105 - contextlib is slow to import
        os.write(2, f"supervisor: {message}\n".encode())
    except OSError:  # most likely a full disk, which the server has reported itself
        pass


if __name__ == "__main__":
    # The user that started this waits only for the first process, so that it never has a child to look after.
    if os.fork() == 0:
        os.fchdir(int(sys.argv[3]))
        os.close(int(sys.argv[3]))
        supervise(sys.argv[1], int(sys.argv[2]))
    os._exit(0)
