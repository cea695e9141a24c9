"""Whose directory, files and server `embedded:` trusts. Another user needs root: such tests are skipped without it."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from redbox import Box, Event, UntrustedStore
from redbox.cli.app import cli
from redbox.store import connect
from redbox.store.embedded import private_directory
from redbox.store.embedded import server as embedded
from tests.servers import valkey_binary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.timeout(60)

SOMEBODY = 12345  # a user without a name, as in many containers
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
LOCKS = ("start.lock", "users.lock", "supervisor.lock", "server.lock")


@pytest.fixture(autouse=True)
def _binary() -> None:
    valkey_binary()


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory like /tmp, where everyone may write."""
    with tempfile.TemporaryDirectory(prefix="redbox-shared-") as name:
        path = Path(name)
        path.chmod(0o1777)
        yield path


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "box"
    yield directory
    assert embedded.wait_stopped(directory), "the test left a server behind"


@contextmanager
def acting_as(user: int) -> Iterator[None]:
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def use(directory: Path) -> None:
    embedded.acquire(directory)
    embedded.release(directory)
    assert embedded.wait_stopped(directory)


async def put(directory: Path, end: str = "") -> None:
    async with Box.open(f"embedded:{directory}{end}", name="orders") as opened:
        await opened.put(Event("order.paid", {"card": "4111"}))


def used(directory: Path) -> Path:
    """A directory with events in it."""
    asyncio.run(put(directory))
    assert embedded.wait_stopped(directory)
    return directory


class Listener:
    """A server of another user's that keeps what it is sent."""

    def __init__(self, path: Path) -> None:
        self.received = b""
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        with acting_as(SOMEBODY):  # the kernel notes who it is that begins to listen
            self._socket.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(5)
                while data := connection.recv(65536):
                    self.received += data
                    connection.sendall(b"+OK\r\n")

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(10)


# --- the directory ---------------------------------------------------------------------------------------------


@as_root
@pytest.mark.parametrize("permissions", [0o700, 0o755, 0o777, 0o1777])
def test_a_directory_of_another_user_is_refused(shared: Path, permissions: int) -> None:
    directory, precious = shared / "box", shared / "precious"
    precious.write_text("mine")
    directory.mkdir()
    (directory / "supervisor.lock").symlink_to(precious)
    (directory / "server.pid").symlink_to(precious)
    os.chown(directory, SOMEBODY, SOMEBODY)
    directory.chmod(permissions)
    with pytest.raises(UntrustedStore, match=rf"box belongs to user {SOMEBODY}, .*; run it as the owner, or name a"):
        embedded.acquire(directory)
    assert precious.read_text() == "mine"
    assert mode(directory) == permissions
    assert sorted(path.name for path in directory.iterdir()) == ["server.pid", "supervisor.lock"]


@as_root
@pytest.mark.parametrize("permissions", [0o755, 0o777, 0o1777, 0o2775])
def test_a_directory_of_root_is_refused_to_others(shared: Path, permissions: int) -> None:
    directory = shared / "box"
    directory.mkdir()
    directory.chmod(permissions)
    with (
        acting_as(SOMEBODY),
        pytest.raises(UntrustedStore, match=r"box belongs to user root \(0\), .* name a directory"),
    ):
        embedded.acquire(directory)
    assert not list(directory.iterdir())


def test_to_someone_else_it_is_a_directory_of_another_user(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same without root."""
    box.mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: SOMEBODY)
    with pytest.raises(UntrustedStore, match=rf"belongs to user .*, and this process runs as user {SOMEBODY};"):
        embedded.acquire(box)


def test_a_new_directory_and_its_files_are_private(box: Path) -> None:
    before = os.umask(0)
    try:
        used(box)
    finally:
        os.umask(before)
    assert mode(box) == mode(box / "appendonlydir") == 0o700
    files = [path for path in box.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {*LOCKS, "server.log"}
    assert {mode(path) for path in files} == {0o600}


@pytest.mark.parametrize("permissions", [0o755, 0o750, 0o711])
def test_a_directory_that_others_may_only_read_is_left_as_it_is(box: Path, permissions: int) -> None:
    box.mkdir()
    box.chmod(permissions)
    use(box)
    assert mode(box) == permissions


def test_other_users_may_not_write_into_a_directory_made_under_a_lax_umask(box: Path) -> None:
    box.mkdir()
    box.chmod(0o2775)
    use(box)
    assert mode(box) == 0o2755
    box.chmod(0o777)  # and again, now that files are in it
    use(box)
    assert mode(box) == 0o755


def test_a_directory_that_others_share_for_other_files_is_refused(box: Path) -> None:
    box.mkdir()
    (box / "notes.txt").touch()
    box.chmod(0o775)
    with pytest.raises(
        UntrustedStore, match=r"other users may write into .*box; run chmod go-w .*box, or name another"
    ):
        embedded.acquire(box)
    assert mode(box) == 0o775
    box.chmod(0o755)
    use(box)


def test_data_of_an_earlier_version_with_lax_permissions_is_kept(box: Path) -> None:
    used(box)
    for path in [box, *box.rglob("*")]:
        path.chmod(0o775 if path.is_dir() else 0o664)

    async def read() -> int:
        async with Box.open(f"embedded:{box}", name="orders") as opened:
            return sum((await opened.stats()).phases.values())

    assert asyncio.run(read()) == 1
    assert {mode(path) for path in box.rglob("*") if path.is_file()} == {0o600}
    assert mode(box / "appendonlydir") == 0o700


PUT = """
import asyncio, sys
from redbox import Box, Event
async def main():
    async with Box.open("embedded:" + sys.argv[1], name="orders") as box:
        await box.put(Event("order.paid", 1))
        print(sum((await box.stats()).phases.values()))
asyncio.run(main())
"""


def run_as_somebody(directory: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs code as another user, who may read everything: this Python may lie in /root."""
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("setpriv is not installed")
    reading = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
    return subprocess.run(
        [
            *(setpriv, f"--reuid={SOMEBODY}", f"--regid={SOMEBODY}", "--clear-groups", *reading),
            *(sys.executable, "-c", code, *arguments),
        ],
        cwd=directory,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


@as_root
def test_a_user_without_a_name_has_a_box_below_a_sticky_directory(shared: Path) -> None:
    directory = shared / "deep" / "box"
    done = run_as_somebody(shared, PUT, str(directory))
    assert (done.stdout.strip(), done.stderr) == ("1", "")
    assert embedded.wait_stopped(directory)
    assert directory.stat().st_uid == SOMEBODY
    with pytest.raises(UntrustedStore, match=f"belongs to user {SOMEBODY}"):  # root too: it could be led anywhere
        embedded.acquire(directory)


# --- what is in it ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [*LOCKS, "server.log", "server.log.1", "server.pid", "server.sock", "stale.sock", "appendonlydir", "temp-7.rdb"],
)
def test_a_symbolic_link_is_not_followed(tmp_path: Path, box: Path, name: str) -> None:
    precious = tmp_path / "precious"
    if name == "appendonlydir":
        precious.mkdir()
    else:
        precious.write_text("mine")
    box.mkdir(mode=0o700)
    (box / name).symlink_to(precious)
    with pytest.raises(UntrustedStore, match=rf"box/{name} is a symbolic link, .*; remove it"):
        embedded.acquire(box)
    assert precious.is_dir() or precious.read_text() == "mine"
    (box / name).unlink()


def test_a_symbolic_link_among_the_data_is_not_followed(tmp_path: Path, box: Path) -> None:
    used(box)
    data = next((box / "appendonlydir").glob("*.incr.aof"))
    data.rename(tmp_path / "elsewhere")
    data.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UntrustedStore, match=rf"{data.name} is a symbolic link"):
        embedded.acquire(box)


@as_root
@pytest.mark.parametrize("name", [*LOCKS, "server.log", "server.pid", "appendonlydir", "appendonlydir/planted.aof"])
def test_a_file_of_another_user_is_refused(box: Path, name: str) -> None:
    used(box)
    path = box / name
    if not path.exists():
        path.touch()
    os.chown(path, SOMEBODY, SOMEBODY)
    with pytest.raises(
        UntrustedStore, match=rf"{name} belongs to user {SOMEBODY}, .*; give it to this user with chown"
    ):
        embedded.acquire(box)


def test_something_else_in_the_place_of_a_file_is_refused(box: Path) -> None:
    box.mkdir(mode=0o700)
    os.mkfifo(box / "server.log")
    with pytest.raises(UntrustedStore, match=r"server.log is not a file of redbox; remove it"):
        embedded.acquire(box)


@pytest.mark.parametrize("name", ["supervisor.lock", "server.log", "server.pid"])
def test_a_file_with_a_second_name_is_not_written(tmp_path: Path, box: Path, name: str) -> None:
    """A hard link needs no permission on every system, and belongs to the owner of the file."""
    precious = tmp_path / "precious"
    precious.write_text("mine")
    box.mkdir(mode=0o700)
    os.link(precious, box / name)
    use(box)
    assert precious.read_text() == "mine"


def test_other_files_in_the_directory_are_left_alone(tmp_path: Path, box: Path) -> None:
    box.mkdir()
    (tmp_path / "target").touch()
    (box / "link").symlink_to(tmp_path / "target")
    (box / "notes.txt").touch()
    (box / "notes.txt").chmod(0o666)
    use(box)
    assert mode(box / "notes.txt") == 0o666


# --- the way to it ---------------------------------------------------------------------------------------------


@as_root
@pytest.mark.parametrize("end", ["", "/", "//"])
def test_a_link_that_another_user_put_into_a_shared_directory_is_refused(shared: Path, end: str) -> None:
    own, link = shared / "own", shared / "link"
    own.mkdir(mode=0o700)
    link.symlink_to(own)
    os.chown(link, SOMEBODY, SOMEBODY, follow_symlinks=False)
    with pytest.raises(UntrustedStore, match=rf"link{end} is a symbolic link that user {SOMEBODY} has made"):
        asyncio.run(put(link, end))
    assert not list(own.iterdir())


@as_root
def test_a_store_that_is_not_trusted_can_be_described(shared: Path) -> None:
    """A description is part of reports and error messages."""
    own, link = shared / "own", shared / "link"
    own.mkdir(mode=0o700)
    link.symlink_to(own)
    os.chown(link, SOMEBODY, SOMEBODY, follow_symlinks=False)
    assert connect.describe(f"embedded:{link}") == f"embedded:{link}"
    assert repr(Box.open(f"embedded:{link}")) == f"Box('default' on embedded:{link})"


def test_a_store_can_be_described_when_the_working_directory_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert connect.describe("embedded:data") == "the store"


def test_a_link_of_ones_own_is_followed(shared: Path) -> None:
    own, link = shared / "own", shared / "link"
    own.mkdir(mode=0o700)
    link.symlink_to(own)
    used(link)
    assert (own / "users.lock").exists()


@as_root
def test_a_link_that_the_owner_of_its_directory_made_is_followed(shared: Path) -> None:
    """As a deployment does that runs as another user than the service."""
    release, own = shared / "release", shared / "own"
    release.mkdir()
    own.mkdir(mode=0o700)
    (release / "data").symlink_to(own)
    for path in (release, release / "data"):
        os.chown(path, SOMEBODY, SOMEBODY, follow_symlinks=False)
    used(release / "data")
    assert (own / "users.lock").exists()


def test_a_directory_that_is_exchanged_after_the_check_is_not_used(
    tmp_path: Path, box: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who may write into a directory above can do so at any moment."""
    other = tmp_path / "other"
    other.mkdir()
    checked = embedded.open_directory

    def exchange(path: str) -> int:
        directory = checked(path)
        box.rename(tmp_path / "checked")
        other.rename(box)
        return directory

    monkeypatch.setattr(embedded, "open_directory", exchange)
    with pytest.raises(embedded.EmbeddedServerFailed, match="did not answer"):
        embedded.acquire(box, timeout=0.3)
    assert not list(box.iterdir())
    assert embedded.wait_stopped(tmp_path / "checked")


# --- the server ------------------------------------------------------------------------------------------------


@as_root
def test_a_server_of_another_user_is_sent_nothing(box: Path) -> None:
    box.mkdir(mode=0o700)
    with open(box / "supervisor.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # so that a server seems to run
        os.fchmod(lock.fileno(), 0o600)
        listener = Listener(box / "server.sock")
        try:
            with pytest.raises(
                UntrustedStore, match=rf"server.sock runs as user {SOMEBODY}, and nothing was sent to it"
            ):
                asyncio.run(put(box))
        finally:
            listener.close()
    assert listener.received == b""


@as_root
@pytest.mark.anyio
async def test_a_server_that_takes_over_the_socket_is_sent_nothing(box: Path) -> None:
    async with Box.open(f"embedded:{box}", name="orders") as opened:
        await opened.put(Event("order.paid", 1))
        await opened._store.exchanges._wire._multiplexers.close()  # the next call connects again
        (box / "server.sock").rename(box / "kept")
        listener = Listener(box / "server.sock")
        try:
            with pytest.raises(UntrustedStore, match="nothing was sent to it"):
                await opened.put(Event("order.paid", 2))
        finally:
            listener.close()
        (box / "kept").replace(box / "server.sock")
        await opened.put(Event("order.paid", 3))
        assert sum((await opened.stats()).phases.values()) == 2
    assert listener.received == b""


@pytest.mark.anyio
async def test_a_server_that_turns_out_to_be_another_users_is_left(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same without root."""
    async with Box.open(f"embedded:{box}", name="orders") as opened:
        await opened.put(Event("order.paid", 1))
        await opened._store.exchanges._wire._multiplexers.close()
        with monkeypatch.context() as patch:
            patch.setattr(private_directory, "_peer", lambda _: SOMEBODY)
            with pytest.raises(UntrustedStore, match="nothing was sent to it"):
                await opened.put(Event("order.paid", 2))
            with pytest.raises(UntrustedStore, match="nothing was sent to it"):
                embedded.acquire(box)
        assert sum((await opened.stats()).phases.values()) == 1


@pytest.mark.parametrize(("platform", "answer"), [("linux", "iII"), ("darwin", "=IIh66x")])
def test_who_listens_is_asked_for_as_each_platform_answers(
    monkeypatch: pytest.MonkeyPatch, platform: str, answer: str
) -> None:
    class Connection:
        def getsockopt(self, level: int, option: int, size: int) -> bytes:
            found = struct.pack(answer, 0, SOMEBODY, 1)
            assert size >= len(found)
            return found

    monkeypatch.setattr(private_directory.sys, "platform", platform)
    assert private_directory._peer(Connection()) == SOMEBODY


def test_without_peer_credentials_the_owner_of_the_socket_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(private_directory.sys, "platform", "sunos5")
    with socket.socket(socket.AF_UNIX) as connection:
        private_directory.check_peer(connection, str(tmp_path))
        monkeypatch.setattr(private_directory.os, "geteuid", lambda: SOMEBODY)
        if os.stat(tmp_path).st_uid:
            with pytest.raises(UntrustedStore):
                private_directory.check_peer(connection, str(tmp_path))


# --- the command line ------------------------------------------------------------------------------------------


@pytest.fixture
def run(shared: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    monkeypatch.chdir(shared)
    monkeypatch.delenv("REDBOX_URL", raising=False)

    def run(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(cli, arguments)
        return result.exit_code, result.output

    return run


@as_root
def test_a_local_directory_of_another_user_is_refused(shared: Path, run: Callable[..., tuple[int, str]]) -> None:
    directory = shared / ".redbox"
    directory.mkdir()
    os.chown(directory, SOMEBODY, SOMEBODY)
    code, output = run("put", "order.paid", "1")
    assert code == 1
    assert f".redbox belongs to user {SOMEBODY}" in output
    assert not list(directory.iterdir())


@as_root
@pytest.mark.parametrize("parent_owner", [0, SOMEBODY])
def test_a_local_link_of_another_user_is_refused(
    shared: Path, run: Callable[..., tuple[int, str]], parent_owner: int
) -> None:
    own, link = shared / "own", shared / ".redbox"
    own.mkdir(mode=0o700)
    link.symlink_to(own)
    os.chown(link, SOMEBODY, SOMEBODY, follow_symlinks=False)
    os.chown(shared, parent_owner, parent_owner)
    code, output = run("put", "order.paid", "1")
    assert code == 1
    assert f"./.redbox is a symbolic link of user {SOMEBODY}; give --url embedded:./.redbox to use it" in output
    assert not list(own.iterdir())
