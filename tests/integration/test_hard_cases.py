"""What is easy to get wrong around a box: threads, forks, event loops, closing, odd input, half-read events."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, cast

import pytest
import redis

from redbox import Box, BoxFull, Conflict, Event, IdReused, State, StoreUnavailable, keys
from redbox.errors import DurabilityNotReached, InvalidSetting, InvalidURL, PartlyCommitted, UsageError
from redbox.store.connect import Endpoint
from redbox.store.embedded import server as embedded
from redbox.store.wire.base import Wire
from redbox.store.wire.single import SingleWire
from redbox.sync import Box as SyncBox
from redbox.testing import advance, check_invariants
from redbox.testing.plugin import new_box_name
from tests import servers

# --- code that is not async ----------------------------------------------------------------------------------------


def test_threads_may_begin_together():
    box = SyncBox.open("memory:", name="threads")
    barrier, receipts = threading.Barrier(8), []

    def work() -> None:
        barrier.wait()
        receipts.append(box.put(Event("n")))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(receipts) == 8
    with box:  # entering later starts no second loop
        assert len(list(box.list())) == 8
    with pytest.raises(UsageError, match="closed"):
        box.put(Event("n"))


@pytest.mark.parametrize("url", ["memory:", "redis"])
def test_a_script_that_does_not_close_its_box_ends(url: str, redis_url: str):
    where = redis_url if url == "redis" else url
    code = (
        "from redbox import Event; from redbox.sync import Box; "
        f"box = Box.open({where!r}, name={new_box_name()!r}); print(box.put(Event('n')).created)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_a_forked_process_gets_a_loop_of_its_own(redis_url: str):
    name = new_box_name()
    with SyncBox.open(redis_url, name=name) as box:
        box.put(Event("parent"))
        child = os.fork()
        if child == 0:  # pragma: no cover  # in another process
            signal.alarm(10)
            os._exit(0 if box.put(Event("child")).created else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert sorted(record.event.event_type for record in box.list()) == ["child", "parent"]


# --- event loops and closing ---------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_box_may_be_used_on_one_event_loop_after_another(redis_url: str):
    """Sockets left open when their loop was closed are nobody's to close; Python says so when it finds them."""
    box = Box.open(redis_url, name=new_box_name())
    for _ in range(3):
        assert asyncio.run(box.put(Event("n"))).created
    asyncio.run(box.aclose())
    del box
    gc.collect()


async def test_a_box_in_use_on_another_loop_says_so(redis_url: str, redbox_runner: asyncio.Runner):
    async with Box.open(redis_url, name=new_box_name()) as box:
        await box.put(Event("n"))
        with pytest.raises(UsageError, match="another event loop"):
            await asyncio.to_thread(lambda: asyncio.run(box.stats()))
        assert (await box.stats()).phases["AVAILABLE"] == 1


async def test_nothing_goes_out_after_closing(redis_url: str, redbox_runner: asyncio.Runner):
    box = Box.open(redis_url, name=new_box_name())
    sent = asyncio.Event()
    put = box._store.put

    async def put_and_tell(*arguments: Any) -> Any:
        replies = await put(*arguments)
        sent.set()
        return replies

    box._store.put = put_and_tell  # type: ignore[method-assign]
    putting = asyncio.create_task(box.put_many([Event("n") for _ in range(5_000)]))  # noqa: RUF006  # awaited below
    await sent.wait()
    await box.aclose()
    with pytest.raises(UsageError, match="closed"):
        await putting
    assert box._store.exchanges._wire is None


async def test_closing_waits_for_a_wire_that_is_being_opened(redbox_runner: asyncio.Runner):
    begun, go_on, closed = asyncio.Event(), asyncio.Event(), []
    box = Box.open("memory:")
    open_wire = box._store.exchanges.endpoint.open

    async def open_when_told() -> Wire:
        begun.set()
        await go_on.wait()
        wire = cast(SingleWire, await open_wire())
        wire._on_close = lambda: asyncio.sleep(0, closed.append(wire))
        return wire

    box._store.exchanges.endpoint = Endpoint("slow", open_when_told)
    calls = [asyncio.create_task(box.get("x")) for _ in range(2)]
    await begun.wait()
    closing = asyncio.create_task(box.aclose())
    await asyncio.sleep(0)
    go_on.set()
    for call in calls:
        with pytest.raises(UsageError, match="closed"):
            await call
    await closing
    assert len(closed) == 1
    assert box._store.exchanges._wire is None


async def transact(box: Box) -> None:
    async with box.transaction() as tx:
        tx.put(Event("n"))


@pytest.mark.parametrize("call", [transact, lambda box: box._store.boxes()], ids=["transaction", "boxes"])
async def test_closing_waits_for_calls_that_use_the_pool(redis_url: str, redbox_runner: asyncio.Runner, call: Any):
    box = Box.open(redis_url, name=new_box_name())
    await box.put(Event("n"))
    pool = cast(SingleWire, await box._store.exchanges.wire())._client.connection_pool
    begun, get_connection = asyncio.Event(), pool.get_connection

    async def get_and_tell() -> Any:
        connection = await get_connection()
        begun.set()
        return connection

    pool.get_connection = get_and_tell  # type: ignore[method-assign]
    calling = asyncio.ensure_future(call(box))
    await begun.wait()
    await box.aclose()
    await calling


# --- where a box is ------------------------------------------------------------------------------------------------


async def test_a_relative_directory_stays_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, redbox_runner: asyncio.Runner
):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    async with Box.open("embedded:data") as box:
        await box.put(Event("n"))
        monkeypatch.chdir(tmp_path / "elsewhere")
    assert embedded.wait_stopped(tmp_path / "data")
    assert not (tmp_path / "elsewhere" / "data").exists()


@pytest.mark.parametrize("killed", [True, False])
@pytest.mark.parametrize("first", ["put", "transaction"])
async def test_an_embedded_directory_that_was_removed(
    tmp_path: Path, redbox_runner: asyncio.Runner, caplog: pytest.LogCaptureFixture, killed: bool, first: str
):
    """The old events are gone with it; a server in a new directory keeps the events put after that."""
    data = tmp_path / "data"
    async with Box.open(f"embedded:{data}") as box:
        await box.put(Event("n"))
        (info,) = await box._store.exchange([("INFO", "server")])
        shutil.rmtree(data)
        if killed:
            os.kill(int(re.search(rb"process_id:(\d+)", info)[1]), signal.SIGKILL)  # type: ignore[index]
        event = Event("n")
        if first == "put":
            assert (await box.put(event)).created
        else:
            async with box.transaction() as tx:
                tx.put(event)
        assert (await asyncio.gather(*(box.put(Event("n")) for _ in range(5))))[0].created
    (said,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert (
        said.getMessage() == f"{data} was removed while in use: the store there is new, and has none of the old events"
    )
    assert embedded.wait_stopped(data)
    async with Box.open(f"embedded:{data}") as box:
        assert await box.get(event.event_id) is not None
        assert (await box.stats()).phases["AVAILABLE"] == 6


async def test_a_transaction_revives_a_dead_embedded_server(tmp_path: Path, redbox_runner: asyncio.Runner):
    async with Box.open(f"embedded:{tmp_path / 'data'}") as box:
        await box.put(Event("n"))
        (info,) = await box._store.exchange([("INFO", "server")])
        pid = next(int(line.partition(b":")[2]) for line in info.splitlines() if line.startswith(b"process_id:"))
        os.kill(pid, signal.SIGKILL)
        for _ in range(20):
            try:
                async with box.transaction() as tx:
                    tx.put(Event("after"))
                break
            except StoreUnavailable:
                await asyncio.sleep(0.05)
        assert [record.event.event_type async for record in box.list()] == ["n", "after"]


@pytest.mark.parametrize(
    "url",
    [
        "redis://localhost/0?decode_responses=True",
        "redis://localhost/0?nonsense=5",
        "redis+cluster://localhost:7000?nonsense=5",
        "redis+sentinel://localhost/service?max_connections=many",
    ],
)
def test_options_that_cannot_be_are_refused_at_once(url: str):
    with pytest.raises(InvalidURL):
        Box.open(url)


@pytest.mark.parametrize("url", ["redis+cluster://localhost:7000", "redis://localhost/0"])
async def test_options_have_the_types_of_redis_py(url: str, redbox_runner: asyncio.Runner):
    async with Box.open(f"{url}?max_connections=5&socket_timeout=2.5") as box:
        assert (await box._store.exchanges.wire()).read_timeout == 2.5


# --- telling what happened -----------------------------------------------------------------------------------------


async def test_skipping_conflicts_hides_nothing_else(redbox_box: Box):
    await redbox_box.put(Event("n", event_id="one", unique_key="u"))
    skipped = await redbox_box.put(Event("n", unique_key="u"), on_conflict="skip")
    assert (skipped.created, skipped.refused, skipped.holder) == (False, "conflict", "one")
    with pytest.raises(IdReused):
        await redbox_box.put(Event("other", event_id="one"), on_conflict="skip")
    await redbox_box.operate.configure(max_pending=1, who="me", why="test")
    with pytest.raises(BoxFull):
        await redbox_box.put(Event("n"), on_conflict="skip")
    receipts = await redbox_box.put_many([Event("other", event_id="one"), Event("n")], on_conflict="skip")
    assert [receipt.refused for receipt in receipts] == ["id_reused", "box_full"]


async def test_a_put_that_may_have_arrived_names_its_event(redbox_runner: asyncio.Runner):
    async with Box.open("redis://127.0.0.1:1/0") as box:
        event = Event("n")
        with pytest.raises(StoreUnavailable, match=event.event_id) as failure:
            await box.put(event)
        assert failure.value.event_id == event.event_id


async def test_a_refusal_is_reported_even_if_the_durability_is_not_reached(
    redis_url: str, redbox_runner: asyncio.Runner
):
    async with Box.open(f"{redis_url}?socket_timeout=1", name=new_box_name()) as box:
        with pytest.raises(DurabilityNotReached, match="same event_id is safe"):
            await box.put(Event("n", event_id="one", unique_key="u"), durability="replicas=1")
        with pytest.raises(Conflict, match="one"):
            await box.put(Event("n", unique_key="u"), durability="replicas=1")


async def test_fsync_is_not_granted_for_ever(redbox_runner: asyncio.Runner):
    with servers.redis_server(appendonly="yes", appendfsync="always") as server:
        async with Box.open(server.url, durability="fsync") as box:
            assert (await box.put(Event("n"))).durability == "fsync"
            server.client().config_set("appendfsync", "everysec")
            with pytest.raises(DurabilityNotReached):
                await box.put(Event("n"))


@pytest.mark.parametrize("wrong", [None, object()])
async def test_arguments_of_the_wrong_type_are_the_callers_affair(redbox_box: Box, wrong: Any):
    with pytest.raises(UsageError):
        await redbox_box.get(wrong)
    with pytest.raises(UsageError):
        await redbox_box.operate.kill([wrong], who="me", why="test")


@pytest.mark.parametrize("field", ["event_type", "key", "error"])
async def test_an_empty_filter_is_not_no_filter(redbox_box: Box, field: str):
    with pytest.raises(UsageError, match=field):
        await redbox_box.replay(**{field: ""})


# --- what cannot be read -------------------------------------------------------------------------------------------


async def test_one_event_that_cannot_be_read_does_not_cost_the_others(redbox_box: Box):
    bad, good = await redbox_box.put_many([Event("n", unique_key="u"), Event("n")])
    await redbox_box._store.exchange([("HSET", keys.event("test", bad.event_id), "created_at", "MARTIAN")])
    assert [claim.event_id for claim in await redbox_box.claim("relay")] == [good.event_id]


async def test_a_damaged_event_fails_and_dies_like_any_other(redbox_box: Box):
    (receipt,) = await redbox_box.put_many([Event("n", ordering_key="a")])
    await redbox_box.put(Event("next", ordering_key="a"))
    await redbox_box._store.exchange([("SET", keys.body("test", receipt.event_id), b"\xc1")])
    for _ in range(3):
        assert await redbox_box.claim("relay", attempts=2) == []
        await advance(redbox_box, minutes=2)
    record = await redbox_box.get(receipt.event_id)
    assert record is not None
    assert (record.state, record.attempts, record.excused) == (State.DEAD, 2, 0)
    assert "damaged" in str(record.last_error)
    assert [claim.event.event_type for claim in await redbox_box.claim("relay")] == ["next"]


async def test_a_head_without_a_body_does_not_stop_its_line(redbox_box: Box):
    head, _ = await redbox_box.put_many([Event("head", ordering_key="a"), Event("next", ordering_key="a")])
    await redbox_box._store.exchange([("DEL", keys.body("test", head.event_id))])
    assert await redbox_box.claim("relay") == []
    assert [claim.event.event_type for claim in await redbox_box.claim("relay")] == ["next"]


async def test_a_foreign_line_stops_a_retry_before_it_writes(redbox_box: Box):
    await redbox_box.put(Event("n", ordering_key="a"))
    (claim,) = await redbox_box.claim("relay")
    line = keys.line("test", "a")
    (stored,) = await redbox_box._store.exchange([("ZRANGE", line, 0, -1, "WITHSCORES")])
    await redbox_box._store.exchange([("SET", line, "foreign")])
    for move in (redbox_box.retry, redbox_box.release, redbox_box.kill, redbox_box.ack):
        with pytest.raises(Exception, match="something else uses"):
            await move(claim)
    await redbox_box._store.exchange([("DEL", line), ("ZADD", line, 1, claim.event_id)])
    assert stored
    assert await redbox_box.ack(claim) == [True]
    assert await check_invariants(redbox_box) == []


# --- retention -----------------------------------------------------------------------------------------------------


async def test_a_retention_of_decades_can_be_swept_by(redbox_box: Box):
    await redbox_box.operate.configure(keep_published=20 * 365 * 86400, who="me", why="test")
    assert (await redbox_box.sweep()).published == 0


async def test_a_negative_retention_is_refused(redbox_box: Box):
    with pytest.raises(InvalidSetting):
        await redbox_box.sweep(keep_dead_count=-1)


async def test_a_limited_sweep_gets_past_heads_that_block(redbox_box: Box):
    await redbox_box.operate.configure(dead_head="block", who="me", why="test")
    await redbox_box.put_many([Event("n", ordering_key=f"k{n}") for n in range(10)])
    await redbox_box.kill(await redbox_box.claim("relay"))
    await advance(redbox_box, seconds=1)
    await redbox_box.put_many([Event("n") for _ in range(10)])
    await redbox_box.kill(await redbox_box.claim("relay"))
    await advance(redbox_box, seconds=1)
    assert [(await redbox_box.sweep(keep_dead=0, limit=4)).dead for _ in range(4)] == [4, 4, 2, 0]


# --- transactions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [("SELECT", 5), (b"multi",), ("CLIENT", "REPLY", "OFF"), ("SUBSCRIBE", "x")])
async def test_commands_that_would_leave_the_transaction_are_refused(redbox_box: Box, command: tuple[Any, ...]):
    async def transact() -> None:
        async with redbox_box.transaction() as tx:
            tx.redis.execute_command(*command)
            tx.put(Event("n"))

    with pytest.raises(UsageError):
        await transact()
    assert (await redbox_box.stats()).phases["AVAILABLE"] == 0


@pytest.mark.req("SC-9")
async def test_events_that_fail_inside_exec_are_reported_as_such(redbox_box: Box):
    async def transact() -> None:
        async with redbox_box.transaction() as tx:
            tx.redis.set(keys.pending("test"), "foreign")
            tx.put(Event("n"))

    await redbox_box.put(Event("n"))
    with pytest.raises(PartlyCommitted, match="your own commands are committed, the events are not"):
        await transact()


async def test_a_transaction_is_for_one_block(redbox_box: Box):
    async with redbox_box.transaction() as tx:
        tx.redis.incr("counter")
    with pytest.raises(UsageError, match="one block"):
        async with tx:
            pass
    assert tx.results == [1]


async def test_nothing_is_lost_outside_of_the_block(redbox_box: Box):
    tx = redbox_box.transaction()
    for use in (lambda: tx.put(Event("n")), lambda: tx.redis.set("a", 1)):
        with pytest.raises(UsageError, match="inside its own"):
            use()
    async with tx:
        with pytest.raises(UsageError, match="only queues"):
            await tx.redis.get("a")
        tx.put(Event("n"))
    for use in (lambda: tx.put(Event("n")), lambda: tx.redis.set("a", 1)):
        with pytest.raises(UsageError, match="inside its own"):
            use()
    assert len(tx.receipts) == 1


async def test_ids_are_not_claims(redbox_box: Box):
    with pytest.raises(UsageError, match=r"claims that box\.claim returned"):
        await redbox_box.ack(["an-id"])
    with pytest.raises(UsageError, match="use put"):
        await redbox_box.put_many(Event("n"))
    with pytest.raises(UsageError, match="no such filter"):
        await redbox_box.page(stat="DEAD")


def test_a_key_with_braces_would_be_elsewhere(redbox_box: Box):
    with pytest.raises(UsageError, match="slot"):
        redbox_box.transaction().key("user:{42}")


# --- servers that change -------------------------------------------------------------------------------------------


async def test_a_master_that_became_a_replica_for_a_moment(redbox_runner: asyncio.Runner):
    with servers.redis_server() as server:
        async with Box.open(server.url) as box:
            await box.put(Event("n"))
            client: redis.Redis = server.client()
            client.replicaof("127.0.0.1", "1")

            async def promote() -> None:
                await asyncio.sleep(0.02)
                client.replicaof("NO", "ONE")

            (claims, _) = await asyncio.gather(box.claim("relay"), promote())
            assert len(claims) == 1  # refused by the replica, so nothing ran, and the claim was made again


def test_importing_redbox_does_not_import_the_server(tmp_path: Path):
    code = "import sys, redbox; redbox.Box; sys.exit('redbox.store.embedded.server' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False).returncode == 0
