"""Redis goes away in the middle of a job: it waits or fails with one clear sentence, and nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from redbox import Event, keys
from redbox.errors import Effect, RedboxError, StoreUnavailable
from redbox.pipeline.archive.job import archive
from redbox.pipeline.archive.layout import Archive
from redbox.pipeline.archive.lock import locked
from redbox.pipeline.failures import translate
from redbox.pipeline.jobs.audit import audit
from redbox.pipeline.source.connection import patiently
from redbox.store.scripts.registry import load
from redbox.testing.conformance.steps import publish
from tests import servers

from .conftest import Played
from .test_archive import address, archived, in_redis
from .test_drain import Drain, check_published, fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.campaign

FOR_GOOD = 1_000_000
READING = b"HGETALL"
CLAIMING, REMOVING, LOCKING = (load(name).sha.encode() for name in ("cut_batch", "drop", "lock"))


class Outage:
    """A proxy between Spark and a server that takes the server away in the middle of a conversation.

    The server has run the command whose reply is lost. It comes back with its append-only file.
    """

    def __init__(self, server: servers.Server) -> None:
        self.server = server
        self.begun, self.over = threading.Event(), threading.Event()
        self.refused = 0
        self._box = b""
        self._plan: tuple[bytes, int, int] | None = None
        self._how = signal.SIGKILL
        self._away = False
        self._lock = threading.Lock()
        self._listener = socket.create_server((server.host, 0))
        self.port = int(self._listener.getsockname()[1])
        self.url = f"redis://{server.host}:{self.port}/0"
        threading.Thread(target=self._serve, daemon=True).start()

    def plan(
        self,
        box: str,
        command: bytes,
        time: int,
        *,
        back_after: int = FOR_GOOD,
        how: signal.Signals = signal.SIGKILL,
    ) -> None:
        """Takes the server away at the `time`th such command for this box, until `back_after` connections failed."""
        self.begun.clear()
        self.over.clear()
        self.refused, self._how = 0, how
        self._box, self._plan = f"{keys.prefix(box)}:".encode(), (command, time, back_after)

    def end(self) -> None:
        """The server is back."""
        with self._lock:
            self._plan = None
            if self.over.is_set() or not self.begun.is_set():
                return
            if self._how == signal.SIGKILL:
                self.server.start()
            else:
                os.kill(self.server.pid, signal.SIGCONT)
            self._away = False
            self.over.set()

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        with suppress(OSError):  # until it is closed
            while True:
                client, _ = self._listener.accept()
                if self._turns_away():
                    client.close()
                    continue
                try:
                    upstream = socket.create_connection((self.server.host, self.server.port))
                except OSError:  # it has just gone away
                    client.close()
                    continue
                lost = threading.Event()
                threading.Thread(target=self._requests, args=(client, upstream, lost), daemon=True).start()
                threading.Thread(target=self._replies, args=(upstream, client, lost), daemon=True).start()

    def _turns_away(self) -> bool:
        if not self._away:
            return False
        self.refused += 1
        plan = self._plan
        if plan is None or self.refused < plan[2]:  # none: it is about to come back
            return True
        self.end()
        return False

    def _requests(self, client: socket.socket, upstream: socket.socket, lost: threading.Event) -> None:
        with suppress(OSError), client, upstream:
            while data := client.recv(65536):
                if self._comes_to_it(data):
                    lost.set()
                upstream.sendall(data)

    def _comes_to_it(self, data: bytes) -> bool:
        with self._lock:
            if self._plan is None or self.begun.is_set() or self._box not in data:
                return False
            command, left, back_after = self._plan
            left -= data.count(command)
            self._plan = (command, left, back_after)
            return left <= 0

    def _replies(self, upstream: socket.socket, client: socket.socket, lost: threading.Event) -> None:
        with suppress(OSError), client, upstream:
            while data := upstream.recv(65536):
                if lost.is_set():
                    self._begin()
                    client.shutdown(socket.SHUT_RDWR)
                    return
                client.sendall(data)
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)

    def _begin(self) -> None:
        with self._lock:
            if self.begun.is_set():
                return
            self._away = self._how == signal.SIGKILL
            if self._away:
                self.server.kill()
            else:
                os.kill(self.server.pid, self._how)
            self.begun.set()


@pytest.fixture(scope="module")
def away() -> Iterator[Outage]:
    """A server of our own that syncs every write before it replies."""
    with servers.redis_server(appendonly="yes", appendfsync="always") as server:
        made = Outage(server)
        yield made
        made.close()


@pytest.fixture
def behind(away: Outage, redbox_runner: asyncio.Runner) -> Iterator[Played]:
    """A box on it: Spark connects through the proxy, the test directly."""
    made = Played(away.server.url, redbox_runner)
    made.url = away.url
    with away.server.client() as client:
        for name in ("claim", "drop", "lock"):
            client.script_load(load(name).text)
    yield made
    redbox_runner.run(made.box.aclose())


def is_told(error: BaseException, away: Outage) -> None:
    """One sentence that says what is wrong."""
    told = translate(error)
    assert isinstance(told, StoreUnavailable), told
    assert told.message.startswith(away.url), told.message
    assert " cannot be reached (" in told.message
    assert "\n" not in told.message
    assert "nothing was changed" not in told.message  # the job may have changed something before


@pytest.mark.parametrize(
    ("effect", "left"),
    [
        (Effect.NOTHING_CHANGED, Effect.UNSAID),
        (Effect.NOTHING_WRITTEN, Effect.UNSAID),
        (Effect.NOTHING_ELSE_CHANGED, Effect.UNSAID),
        (Effect.UNKNOWN, Effect.UNKNOWN),
    ],
)
def test_an_error_does_not_speak_for_the_whole_job(monkeypatch: pytest.MonkeyPatch, effect: Effect, left: Effect):
    """It speaks of its last command only: the job may have changed something before."""

    async def call() -> None:
        raise StoreUnavailable("gone").with_effect(effect, "!")

    for each in Effect:
        monkeypatch.setattr(each, "_value_", f"; {each.name}")
    with pytest.raises(StoreUnavailable) as caught:
        asyncio.run(patiently(0, call))
    assert (caught.value.effect, caught.value.message) == (left, f"gone{left.value}!")


# --- reading -------------------------------------------------------------------------------------------------------


@pytest.mark.req("SP-1")
def test_a_read_goes_on_when_the_server_is_back(behind: Played, away: Outage, spark: SparkSession):
    """It is away for longer than a task waits: the tasks are run again."""
    ids = fill(behind, 300)
    away.plan(behind.name, READING, 100, back_after=6)
    rows = behind.read(spark, partition_size=75, slice=10).select("event_id").collect()
    assert away.begun.is_set()
    assert away.refused == 6
    assert Counter(row[0] for row in rows) == ids


@pytest.mark.req("SP-1")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_read_from_a_server_that_is_gone_ends_with_a_sentence(
    behind: Played, away: Outage, spark: SparkSession, how: signal.Signals
):
    """Also when it is there, and does not answer."""
    fill(behind, 100)
    away.plan(behind.name, READING, 50, how=how)
    before = time.monotonic()
    url = f"{away.url}?socket_timeout=0.2"
    try:
        with pytest.raises(PySparkException) as raised:
            behind.read(spark, url=url, partition_size=50, slice=10, patience=0.5).collect()
    finally:
        away.end()
    assert time.monotonic() - before < 180
    is_told(raised.value, away)


# --- archive -------------------------------------------------------------------------------------------------------


def settle(played: Played, count: int) -> set[str]:
    """Published events of two types, and one that waits."""
    for kind in range(2):
        played.run(publish(played.box, *[Event(f"n.{kind}", event_id=f"{kind}-{each:03}") for each in range(count)]))
    played.run(played.box.put(Event("waits", event_id="waits")))
    return {f"{kind}-{each:03}" for kind in range(2) for each in range(count)}


def fail_to_archive(played: Played, away: Outage, spark: SparkSession, lake: Path) -> str:
    try:
        with pytest.raises((PySparkException, RedboxError)) as raised:
            archive(spark, address(played), str(lake), patience=0.5)
        time.sleep(2)  # a task of the job that failed may still be looking for the server, and would go on
    finally:
        away.end()
    assert away.begun.is_set()
    is_told(raised.value, away)
    return str(translate(raised.value))


def archive_again(played: Played, away: Outage, spark: SparkSession, lake: Path) -> Any:
    """The server was away for too long for the lock to be freed: it expires by itself."""
    with away.server.client() as client:
        client.delete(keys.lock(played.name, "archive"))
    return archive(spark, address(played), str(lake))


@pytest.mark.campaign
@pytest.mark.req("SP-5")
def test_an_archive_that_loses_the_server_while_it_reads(
    behind: Played, away: Outage, spark: SparkSession, tmp_path: Path
):
    ids = settle(behind, 20)
    away.plan(behind.name, READING, 20)
    fail_to_archive(behind, away, spark, tmp_path)
    assert in_redis(behind) == ids | {"waits"}
    assert Archive(spark, str(tmp_path)).manifests() == []
    again = archive_again(behind, away, spark, tmp_path)
    assert (again.finished, again.removed, again.left) == (0, 40, 0)
    assert Counter(event_id for event_id, _ in archived(spark, tmp_path).elements()) == Counter(ids)
    assert in_redis(behind) == {"waits"}


@pytest.mark.campaign
@pytest.mark.req("SP-5", "SP-9")
def test_an_archive_that_loses_the_server_while_it_removes(
    behind: Played, away: Outage, spark: SparkSession, tmp_path: Path
):
    ids = settle(behind, 600)  # a task removes 500 at a time
    away.plan(behind.name, REMOVING, 2)
    told = fail_to_archive(behind, away, spark, tmp_path)
    (run,) = [manifest.run for manifest in Archive(spark, str(tmp_path)).manifests()]
    assert told.endswith(
        f"; run {run} is in the archive, and some of its events may be removed from Redis already; run the archive "
        "again to finish"
    )
    left = in_redis(behind) - {"waits"}
    assert 0 < len(left) < 1200
    known = archived(spark, tmp_path)
    assert Counter(event_id for event_id, _ in known.elements()) == Counter(ids)
    store = Archive(spark, str(tmp_path))
    assert (len(store.manifests()), store.removals()) == (1, {})
    checked = audit(spark, address(behind))
    assert (checked.events, checked.problems) == (len(left) + 1, 0)
    again = archive_again(behind, away, spark, tmp_path)
    assert (again.finished, again.rows, again.removed) == (1, 0, 1200)
    assert store.removals()[store.manifests()[0].run].removed == 1200
    assert archived(spark, tmp_path) == known
    assert in_redis(behind) == {"waits"}


@pytest.mark.req("SP-5")
def test_a_run_that_fails_while_the_server_is_away_frees_its_lock(behind: Played, away: Outage):
    def fail() -> None:
        with locked(address(behind)) as still_ours:
            away.plan(behind.name, LOCKING, 1, back_after=6)
            still_ours()

    with pytest.raises(StoreUnavailable):
        fail()
    assert away.over.is_set()
    with locked(address(behind)):
        pass


@pytest.mark.req("SP-5")
@pytest.mark.parametrize(("step", "number"), [(READING, 600), (LOCKING, 2), (REMOVING, 2)])
def test_an_archive_waits_until_the_server_is_back(
    behind: Played, away: Outage, spark: SparkSession, tmp_path: Path, step: bytes, number: int
):
    """Away for longer than four tries of a task take. The server removed events and could not say so: asked again, it
    does not know them."""
    ids = settle(behind, 600)
    away.plan(behind.name, step, number, back_after=16)
    done = archive(spark, address(behind), str(tmp_path))
    assert away.begun.is_set()
    assert (done.rows, done.removed, done.left) == (1200, 1200, 0)
    assert Counter(event_id for event_id, _ in archived(spark, tmp_path).elements()) == Counter(ids)
    assert in_redis(behind) == {"waits"}


# --- drain ---------------------------------------------------------------------------------------------------------


@pytest.mark.req("SP-3")
def test_a_drain_waits_for_the_server(behind: Played, away: Outage, spark: SparkSession, tmp_path: Path):
    ids = fill(behind, 90)
    drain = Drain(spark, behind, tmp_path, patience=60)
    away.plan(behind.name, CLAIMING, 2, back_after=4)
    before = time.monotonic()
    drain.once()
    assert away.refused == 4
    assert time.monotonic() - before > 1
    assert drain.rows() == ids
    check_published(behind, 90)


@pytest.mark.req("SP-3")
def test_a_drain_whose_tasks_lose_the_server(behind: Played, away: Outage, spark: SparkSession, tmp_path: Path):
    """Away for longer than four tries of a task, which look for it eleven times, and for less than its patience."""
    ids = fill(behind, 30)
    drain = Drain(spark, behind, tmp_path, patience=60, partition_size=40)
    away.plan(behind.name, READING, 20, back_after=12)
    try:
        drain.once()
    finally:
        away.end()
    assert away.refused == 12
    assert drain.rows() == ids
    check_published(behind, 30)


@pytest.mark.req("SP-3")
def test_a_drain_fails_when_its_patience_ends_and_can_go_on(
    behind: Played, away: Outage, spark: SparkSession, tmp_path: Path
):
    ids = fill(behind, 90)
    drain = Drain(spark, behind, tmp_path, patience=0.5)
    away.plan(behind.name, CLAIMING, 2)
    before = time.monotonic()
    try:
        with pytest.raises(StreamingQueryException) as raised:
            drain.once()
    finally:
        away.end()
    assert time.monotonic() - before < 60
    is_told(raised.value, away)
    drain.once()
    assert drain.rows() == ids
    check_published(behind, 90)
