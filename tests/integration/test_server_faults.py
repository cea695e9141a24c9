"""What servers do to their clients: forget scripts, restart, vanish, lose replies, fill up, refuse; and neighbours who
use our key names, or a newer redbox."""

# ruff: noqa: PT012  # a transaction is a block of its own

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import redis

from redbox import Box, BoxPaused, Event, Outcome, State, StoreUnavailable, UnexpectedReply, keys
from redbox.errors import ForeignKey, NewerLayout, StoreFull
from redbox.testing import advance, check_invariants
from redbox.testing.plugin import new_box_name
from tests import servers
from tests.proxy import proxy, refusing_server

pytestmark = pytest.mark.usefixtures("redbox_runner")

Operation = Callable[[], Awaitable[Any]]


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Server]:
    with servers.redis_server() as started:
        yield started


@pytest.fixture(scope="module")
def client(server: servers.Server) -> Iterator[redis.Redis]:
    """The server from behind redbox's back."""
    with server.client(decode_responses=False) as opened:
        yield opened


@pytest.fixture
def box(server: servers.Server, redbox_runner: asyncio.Runner) -> Iterator[Box]:
    opened = Box.open(server.url, name=new_box_name())
    yield opened
    redbox_runner.run(opened.aclose())


def content(client: redis.Redis, name: str) -> dict[bytes, Any]:
    """Everything a box holds, byte for byte."""
    return {key: client.dump(key) for key in client.scan_iter(f"{keys.prefix(name)}*")}


# --- scripts are forgotten -------------------------------------------------------------------------------------


async def test_a_script_flush_between_calls_is_not_noticed(box: Box, client: redis.Redis):
    for number in range(3):
        client.script_flush()
        receipt = await box.put(Event("user.created", {"id": number}))
        client.script_flush()
        (claim,) = await box.claim("relay-1")
        client.script_flush()
        assert await box.ack(claim) == [True]
        client.script_flush()
        record = await box.get(receipt.event_id)
        assert record is not None
        assert record.state is State.PUBLISHED


async def test_a_script_flush_during_puts_loses_and_doubles_nothing(box: Box, client: redis.Redis):
    async def flush() -> None:
        for _ in range(20):
            await asyncio.to_thread(client.script_flush)

    async def put(number: int) -> bool:
        for _ in range(number % 7):
            await asyncio.sleep(0)  # several batches, not one
        return (await box.put(Event("user.created", {"id": number}))).created

    created, _ = await asyncio.gather(asyncio.gather(*(put(number) for number in range(200))), flush())
    assert created == [True] * 200
    assert (await box.stats()).totals["put"] == 200
    assert await check_invariants(box) == []


# --- the server restarts, or is away ---------------------------------------------------------------------------


@pytest.mark.req("PL-7", "SC-1")
@pytest.mark.parametrize("launch", [servers.redis_server, servers.valkey_server])
@pytest.mark.parametrize("end", ["restart", "kill"])
async def test_the_same_box_goes_on_after_a_restart(launch: Any, end: str):
    with launch(appendonly="yes", appendfsync="always") as started:
        async with Box.open(started.url, name="orders") as box:
            first = await box.put(Event("user.created", {"id": 1}))
            (claim,) = await box.claim("relay-1")
            if end == "kill":
                started.kill()
            await asyncio.to_thread(started.restart)
            second = await box.put(Event("user.created", {"id": 2}))
            assert second.created
            assert await box.ack(claim) == [True]
            record = await box.get(first.event_id)
            assert record is not None
            assert record.state is State.PUBLISHED
            assert await check_invariants(box) == []


async def test_an_unreachable_server_is_reported_soon():
    with servers.redis_server() as started:
        box = Box.open(started.url)
        await box.put(Event("user.created"))
        (claim,) = await box.claim("relay-1")
    async with box:
        began = time.monotonic()
        operations: list[Operation] = [lambda: box.put(Event("user.created")), lambda: box.ack(claim), box.stats]
        for act in operations:
            with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:\d+/0 cannot be reached"):
                await act()
        assert time.monotonic() - began < 3


# --- a reply is lost -------------------------------------------------------------------------------------------


@asynccontextmanager
async def box_behind_proxy(server: servers.Server) -> AsyncIterator[tuple[Box, Any]]:
    """A box whose scripts are loaded already, so that the next EVALSHA is the one that counts."""
    async with proxy(server.port) as passing, Box.open(passing.url, name=new_box_name()) as box:
        warm = await box.put(Event("warm.up"))
        claims = await box.claim("warm-up")
        assert [claim.event_id for claim in claims] == [warm.event_id]
        await box.ack(claims, delete=True)
        yield box, passing


@pytest.mark.req("EM-1", "PL-7")
async def test_a_put_whose_reply_is_lost_is_repeated_and_the_event_exists_once(server: servers.Server):
    async with box_behind_proxy(server) as (box, passing):
        passing.lose_reply_to(b"EVALSHA")
        receipt = await box.put(Event("user.created", {"id": 42}))
        assert passing.lost == 1
        assert not receipt.created  # by the repetition; the first one created it
        stats = await box.stats()
        assert (stats.totals["put"], stats.phases["AVAILABLE"]) == (2, 1)  # the warm-up's was the first
        assert await check_invariants(box) == []


@pytest.mark.req("EM-1", "PL-7")
async def test_a_put_whose_replies_are_all_lost_says_that_it_may_have_been_made(server: servers.Server):
    event = Event("user.created", {"id": 42})
    async with box_behind_proxy(server) as (box, passing):
        passing.lose_reply_to(b"EVALSHA", times=3)
        with pytest.raises(StoreUnavailable, match="may or may not have been carried out"):
            await box.put(event)
        assert passing.lost == 3
        assert not (await box.put(event)).created
        assert (await box.stats()).phases["AVAILABLE"] == 1


@pytest.mark.req("EM-1")
async def test_a_put_repeated_by_the_caller_with_the_same_id_is_safe(server: servers.Server):
    async with box_behind_proxy(server) as (box, _):
        event = Event("user.created", {"id": 42}, ordering_key="user:42", unique_key="user:42")
        assert [(await box.put(event)).created for _ in range(3)] == [True, False, False]
        assert (await box.stats()).phases["AVAILABLE"] == 1


@pytest.mark.req("SC-2", "PL-7")
async def test_a_claim_whose_reply_is_lost_is_not_repeated(server: servers.Server):
    async with box_behind_proxy(server) as (box, passing):
        await box.put_many([Event("user.created", {"id": number}) for number in range(10)])
        passing.lose_reply_to(b"EVALSHA")
        with pytest.raises(StoreUnavailable, match="may or may not"):
            await box.claim("relay-1", limit=3)
        stats = await box.stats()
        assert (stats.phases["IN_FLIGHT"], stats.phases["AVAILABLE"]) == (3, 7)
        await advance(box, minutes=1)
        assert len(await box.reap()) == 3  # and nothing is lost


@pytest.mark.req("PL-6", "PL-7")
async def test_an_ack_whose_reply_is_lost_is_not_repeated_and_takes_effect(server: servers.Server):
    async with box_behind_proxy(server) as (box, passing):
        await box.put(Event("user.created"))
        (claim,) = await box.claim("relay-1")
        passing.lose_reply_to(b"EVALSHA")
        with pytest.raises(StoreUnavailable, match="may or may not"):
            await box.ack(claim)
        record = await box.get(claim.event_id)
        assert record is not None
        assert record.state is State.PUBLISHED
        assert await box.ack(claim) == [False]


async def test_order_is_kept_when_the_reply_to_a_batch_is_lost(server: servers.Server):
    async with box_behind_proxy(server) as (box, passing):
        passing.lose_reply_to(b"EVALSHA")
        await asyncio.gather(*(box.put(Event("user.changed", number, ordering_key="user:42")) for number in range(20)))
        seen = []
        while claims := await box.claim("relay-1"):
            seen += [claim.event.decode() for claim in claims]
            await box.ack(claims)
        assert seen == list(range(20))


# --- the server refuses ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "exception", "text"),
    [
        (b"LOADING Redis is loading the dataset in memory", StoreUnavailable, "is still loading its data"),
        (b"READONLY You can't write against a read only replica.", StoreUnavailable, "read-only replica"),
        (b"NOPERM this user has no permissions to run the 'evalsha' command", StoreUnavailable, "permissions"),
        (b"NOAUTH Authentication required.", StoreUnavailable, "asks for a password"),
        (b"MISCONF Redis is configured to save RDB snapshots", StoreFull, "out of disk"),
        (b"MASTERDOWN Link with MASTER is down", StoreUnavailable, "has lost its master, or is not synchronized yet"),
        (b"BUSY Redis is busy running a script", StoreUnavailable, "busy with another client's script"),
        (b"NOREPLICAS Not enough good replicas to write.", StoreUnavailable, "fewer replicas"),
        (b"ERR something else", UnexpectedReply, "something else"),
    ],
)
async def test_an_error_reply_becomes_a_sentence(answer: bytes, exception: type[Exception], text: str):
    async with refusing_server(answer) as url, Box.open(url) as box:
        with pytest.raises(exception, match=text):
            await box.put(Event("user.created"))
        with pytest.raises(exception, match=text):
            await box.claim("relay-1")
        with pytest.raises(exception, match=text):
            await box.exists()
        with pytest.raises(exception, match=text):
            async with box.transaction() as tx:
                tx.put(Event("user.created"))


async def test_a_read_only_replica_is_reported_and_can_be_read(server: servers.Server, box: Box):
    receipt = await box.put(Event("user.created"))
    with servers.redis_server(replicaof=f"127.0.0.1 {server.port}") as replica:
        with replica.client() as client:
            servers.poll(lambda: client.info("replication")["master_link_status"] == "up", "no link")  # type: ignore[index]
        async with Box.open(replica.url, name=box.name) as copy:
            with pytest.raises(StoreUnavailable, match="is a read-only replica; connect to its master"):
                await copy.put(Event("user.created"))
            with pytest.raises(StoreUnavailable, match="is a read-only replica; connect to its master"):
                await copy.claim("relay-1")
            with pytest.raises(StoreUnavailable, match="is a read-only replica; connect to its master"):
                async with copy.transaction() as tx:
                    tx.put(Event("user.created"))
            record = await copy.get(receipt.event_id)
            assert record is not None
            assert (await copy.stats()).phases["AVAILABLE"] == 1


# --- the server is full ----------------------------------------------------------------------------------------


@pytest.mark.req("SC-4")
@pytest.mark.parametrize("launch", [servers.redis_server, servers.valkey_server])
async def test_a_full_server_takes_no_event_but_the_box_can_be_drained(launch: Any):
    with launch(maxmemory_policy="noeviction") as started, started.client(decode_responses=False) as client:
        async with Box.open(started.url, name="orders") as box:
            for number in range(12):
                await box.put(
                    Event("user.created", {"id": number}, ordering_key=f"user:{number % 3}", unique_key=f"{number}")
                )
            await box.put(Event("user.created", {"id": 12}, delay=60, event_id="scheduled"))
            await box.put(Event("user.created", {"id": 13}, event_id="dead"))
            await box.operate.kill(["dead"], who="ada", why="to replay it")
            client.config_set("maxmemory", 1)

            before = content(client, "orders")
            with pytest.raises(StoreFull, match="out of memory; nothing was written"):
                await box.put(Event("user.created", {"id": 99}))
            with pytest.raises(StoreFull):
                await box.put_many([Event("user.created")] * 3)
            with pytest.raises(StoreFull):
                async with box.transaction() as tx:
                    tx.redis.set("mine", "x")
                    tx.put(Event("user.created"))
            with pytest.raises(StoreFull):
                await box.replay(["dead"])
            assert content(client, "orders") == before
            assert not client.exists("mine")

            one, two, three = await box.claim("relay-1", limit=3)
            assert await box.renew([one, two, three]) == [True] * 3
            assert await box.ack(one) == [True]
            assert await box.retry(two, error="no answer", delay=5) == [True]
            assert await box.kill(three, reason="never") == [True]
            (four, *others) = await box.claim("relay-1")
            assert await box.release(others) == [True] * len(others)
            await box.renew(four, lease=0.001)
            assert await box.operate.release([four.event_id], who="ada", why="stuck") == [Outcome.OK]
            assert await box.operate.reschedule(["scheduled"], who="ada", why="now") == [Outcome.OK]
            assert await box.operate.kill(["scheduled"], who="ada", why="enough") == [Outcome.OK]
            assert await box.operate.drop(["scheduled"], who="ada", why="enough") == [Outcome.OK]
            await box.operate.pause(who="ada", why="full")
            with pytest.raises(BoxPaused):
                await box.claim("relay-1")
            await box.operate.resume(who="ada", why="drain it")
            swept = await box.sweep(keep_published=0, keep_dead=0)
            assert (swept.published, swept.dead) == (1, 2)
            assert len([record async for record in box.list()]) == 10
            assert await check_invariants(box) == []

            client.config_set("maxmemory", 0)
            assert (await box.put(Event("user.created"))).created


async def test_reap_works_on_a_full_server():
    with servers.redis_server() as started, started.client() as client:
        async with Box.open(started.url) as box:
            await box.put(Event("user.created"))
            await box.claim("relay-1", lease=30)
            await advance(box, minutes=1)
            client.config_set("maxmemory", 1)
            assert len(await box.reap()) == 1


# --- somebody else uses our names ------------------------------------------------------------------------------

#: A put looks at all of them before it writes.
WRITTEN_BY_PUT = [
    "meta", "pending", "waiting", "suspect", "claimed", "published", "dead", "retries", "blocked", "lost", "counters",
]  # fmt: skip


@pytest.mark.req("SC-4")
@pytest.mark.parametrize("name", WRITTEN_BY_PUT)
async def test_a_put_into_foreign_keys_is_refused_and_writes_nothing(box: Box, client: redis.Redis, name: str):
    foreign = getattr(keys, name)(box.name)
    client.set(foreign, "somebody else's")
    before = content(client, box.name)
    for event in (Event("user.created"), Event("user.created", ordering_key="o", unique_key="u")):
        with pytest.raises(
            ForeignKey, match=f"something else uses the key names of box '{box.name}'.*choose another name"
        ):
            await box.put(event)
    assert content(client, box.name) == before


@pytest.mark.req("SC-4")
@pytest.mark.parametrize("name", WRITTEN_BY_PUT)
async def test_a_transaction_on_foreign_keys_commits_nothing_of_the_callers(box: Box, client: redis.Redis, name: str):
    client.set(getattr(keys, name)(box.name), "somebody else's")
    with pytest.raises(ForeignKey):
        async with box.transaction() as tx:
            tx.redis.set(tx.key("mine"), "x")
            tx.put(Event("user.created"))
    assert client.get(tx.key("mine")) is None


# --- a newer redbox --------------------------------------------------------------------------------------------


async def test_a_newer_layout_is_reported_by_every_method(box: Box, client: redis.Redis):
    await box.put_many([Event("user.created", event_id=f"{box.name}-{number}") for number in range(3)])
    (claim,) = await box.claim("relay-1", limit=1)
    client.hset(keys.meta(box.name), mapping={"layout": 2, "dead_head": "a policy of the future"})
    before = content(client, box.name)
    ids, who = [claim.event_id], {"who": "ada", "why": "a test"}

    async def listed() -> list[Any]:
        return [record async for record in box.list()]

    async def transact() -> None:
        async with box.transaction() as tx:
            tx.put(Event("user.created"))

    operations: dict[str, Operation] = {
        "put": lambda: box.put(Event("user.created")),
        "put_many": lambda: box.put_many([Event("user.created")]),
        "transaction": transact,
        "get": lambda: box.get(ids[0]),
        "page": box.page,
        "list": listed,
        "stats": box.stats,
        "settings": box.settings,
        "claim": lambda: box.claim("relay-1"),
        "renew": lambda: box.renew(claim),
        "ack": lambda: box.ack(claim),
        "retry": lambda: box.retry(claim),
        "kill": lambda: box.kill(claim),
        "release": lambda: box.release(claim),
        "reap": box.reap,
        "replay": lambda: box.replay(ids),
        "sweep": box.sweep,
        "operate.kill": lambda: box.operate.kill(ids, **who),
        "operate.release": lambda: box.operate.release(ids, **who),
        "operate.reschedule": lambda: box.operate.reschedule(ids, **who),
        "operate.drop": lambda: box.operate.drop(ids, **who),
        "operate.pause": lambda: box.operate.pause(**who),
        "operate.resume": lambda: box.operate.resume(**who),
        "operate.configure": lambda: box.operate.configure(max_pending=1, **who),
    }
    outcomes: dict[str, str] = {}
    for name, act in operations.items():
        try:
            await act()
            outcomes[name] = "nothing raised"
        except Exception as error:
            outcomes[name] = type(error).__name__
    assert outcomes == dict.fromkeys(operations, NewerLayout.__name__)
    assert content(client, box.name) == before


async def test_an_event_of_a_newer_redbox_is_given_back_and_not_burned(
    box: Box, client: redis.Redis, caplog: pytest.LogCaptureFixture
):
    receipts = await box.put_many([Event("user.created", {"id": number}) for number in range(3)])
    newer = receipts[1].event_id
    client.set(keys.body(box.name, newer), msgspec.msgpack.encode([2, {"payload": "elsewhere"}]))

    with caplog.at_level(logging.ERROR, "redbox"):
        claims = await box.claim("relay-1", attempts=3)
    assert [claim.event_id for claim in claims] == [receipts[0].event_id, receipts[2].event_id]
    assert await box.ack(claims) == [True, True]
    assert f"event {newer} was written by a newer redbox" in caplog.text

    stored = client.hgetall(keys.event(box.name, newer))
    assert (stored[b"state"], stored[b"attempts"], stored[b"excused"]) == (b"PENDING", b"1", b"1")
    stats = await box.stats()
    assert stats.phases["RETRY_SCHEDULED"] == 1
    assert stats.next_due is not None
    assert 50 < stats.next_due.total_seconds() <= 60
    record = await box.get(newer)  # an operator still sees its state
    assert record is not None
    assert (record.state, record.event.event_type, record.event.payload) == ("PENDING", "user.created", b"")
    assert re.search(f"event {newer} was written by a newer redbox.*upgrade this redbox", str(record.problem))
    assert await check_invariants(box) == []


async def test_a_damaged_body_is_reported_and_does_not_stop_the_others(box: Box, client: redis.Redis):
    receipts = await box.put_many([Event("user.created", {"id": number}) for number in range(3)])
    client.set(keys.body(box.name, receipts[0].event_id), b"\xc1")
    claims = await box.claim("relay-1")
    assert [claim.event_id for claim in claims] == [receipts[1].event_id, receipts[2].event_id]
    problems = {record.event_id: record.problem async for record in box.list()}
    assert "its stored body is damaged" in str(problems.pop(receipts[0].event_id))
    assert set(problems.values()) == {None}
