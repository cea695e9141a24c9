"""The guard: each event is handled once, although deliveries repeat, come late, overlap, and crash between."""

# ruff: noqa: PT012  # a handler is more than one statement

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import anyio
import fakeredis
import pytest
import redis
import redis.asyncio
from redis.asyncio.cluster import RedisCluster as AsyncCluster
from redis.cluster import RedisCluster

from redbox.consumer import Delivery, DeliveryInProgress, Guard, LeaseLost, StaleDelivery, SyncGuard
from redbox.consumer import guard as async_guard
from redbox.consumer.records import ABANDON, BEGIN, FINISH
from redbox.consumer.sync_guard import SyncAttempt
from redbox.errors import UsageError
from redbox.store.scripts.registry import Script
from tests import servers
from tests.proxy import proxy
from tests.unit.test_scripts import LUA, code_of, header_of

PERMISSIONS = (LUA.parent / "docs" / "permissions.md").read_text()

pytestmark = [pytest.mark.req("CK-2"), pytest.mark.usefixtures("redbox_runner")]


def one_node(cluster_url: str) -> str:
    return cluster_url.replace("redis+cluster", "redis").partition(",")[0]


@pytest.fixture(scope="module")
def valkey_url() -> Iterator[str]:
    with servers.valkey_server() as server:
        yield server.url


@pytest.fixture(params=["memory", "redis", "valkey", "cluster"])
def url(request: pytest.FixtureRequest) -> str | None:
    if request.param == "memory":
        return None
    found = str(request.getfixturevalue(f"{request.param}_url"))
    return f"cluster {one_node(found)}" if request.param == "cluster" else found


@pytest.fixture
def client(url: str | None, redbox_runner: asyncio.Runner) -> Iterator[Any]:
    made = redbox_runner.run(opened(url))
    yield made
    redbox_runner.run(made.aclose())


async def opened(url: str | None) -> Any:
    made: Any
    if url is None:
        made = fakeredis.FakeAsyncRedis()
    elif url.startswith("cluster "):
        made = AsyncCluster.from_url(url.removeprefix("cluster "))
    else:
        made = redis.asyncio.Redis.from_url(url)
    await made.flushall()
    return made


@pytest.fixture
def sync_client(url: str | None) -> Iterator[Any]:
    made: Any
    if url is None:
        made = fakeredis.FakeRedis()
    elif url.startswith("cluster "):
        made = RedisCluster.from_url(url.removeprefix("cluster "))
    else:
        made = redis.Redis.from_url(url)
    made.flushall()
    yield made
    if isinstance(made, RedisCluster):
        made.disconnect_connection_pools()  # its close() leaves them connected
    made.close()


def delivery(event_id: str = "a", claim: int | None = 1, key: str | None = None, source: str = "/redbox/b") -> Delivery:
    return Delivery(
        event_id=event_id,
        event_type="t",
        source=source,
        payload=b"",
        content_type="text/plain",
        claim=claim,
        ordering_key=key,
    )


async def crash(guard: Guard, each: Delivery) -> None:
    """Begins to handle a delivery, as a process that is killed then."""
    assert await guard.once(each).__aenter__()


async def end_leases(client: Any) -> None:
    """Moves the end of every lease into the past."""
    async for key in client.scan_iter(match="redbox:consumer:*:seen:*"):
        if await client.hexists(key, "until"):
            await client.hset(key, "until", "1")


async def test_an_event_is_handled_once(client: Any):
    guard, handled = Guard(client, name="billing"), []
    for claim in (1, 2, 2, 3):
        async with guard.once(delivery(claim=claim)) as first:
            if first:
                handled.append(claim)
    assert handled == [1]


async def test_by_id_instead_of_a_delivery(client: Any):
    guard = Guard(client, name="billing")
    async with guard.once("a", claim=5, source="/redbox/b") as first:
        assert first
    async with guard.once(delivery(claim=6)) as first:
        assert not first
    async with guard.once("a") as first:  # another source
        assert first
    async with guard.once("a") as first:
        assert not first


async def test_consumers_and_boxes_have_memories_of_their_own(client: Any):
    for guard in (Guard(client, name="billing"), Guard(client, name="search")):
        for source in ("/redbox/a", "/redbox/b"):
            async with guard.once(delivery(source=source)) as first:
                assert first


async def test_after_an_error_the_next_delivery_begins_at_once(client: Any):
    guard = Guard(client, name="billing")
    with pytest.raises(ZeroDivisionError):
        async with guard.once(delivery(claim=1)):
            1 / 0  # noqa: B018
    async with guard.once(delivery(claim=2)) as first:
        assert first


async def test_a_cancelled_handling_ends_at_once(client: Any):
    guard, begun = Guard(client, name="billing"), asyncio.Event()

    async def handle() -> None:
        async with guard.once(delivery()):
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(handle())
    await begun.wait()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    async with guard.once(delivery(claim=2)) as first:
        assert first


@pytest.mark.parametrize("way", ["task", "task twice", "scope"])
@pytest.mark.parametrize("renews", [False, True])
async def test_a_handling_cancelled_at_any_moment(client: Any, way: str, renews: bool):
    """Either the block has ended, and the event is handled, or the next delivery begins at once."""
    guard = Guard(client, name="billing")

    async def handle(event_id: str) -> None:
        async with guard.once(delivery(event_id)) as first:
            assert first
            if renews:
                await first.renew()
            done.add(event_id)

    async with guard.once(delivery("warm")):  # connected, and the scripts are there
        pass
    done: set[str] = set()
    outcomes = []
    for turns in range(1000):
        event_id = f"{way[0]}{turns}"
        with anyio.CancelScope() as scope:
            task = asyncio.current_task() if way == "scope" else asyncio.ensure_future(handle(event_id))
            assert task is not None
            if way == "scope":
                after(turns, scope.cancel)
                await handle(event_id)
        if way != "scope":
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            if way == "task twice":
                await asyncio.sleep(0)
                task.cancel()
            await asyncio.wait([task])
        async with guard.once(delivery(event_id, claim=2)) as first:
            outcomes.append(bool(first))
            assert bool(first) == (event_id not in done), f"cancelled after {turns} turns"
        ended = not scope.cancelled_caught if way == "scope" else not task.cancelled()
        if ended:
            break
    assert ended
    assert outcomes[-1] is False


async def test_a_cancelled_handling_does_not_wait_for_a_silent_server(redis_url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(async_guard, "SHIELD_SECONDS", 0.05)
    async with proxy(urlsplit(redis_url).port or 0) as between, redis.asyncio.Redis.from_url(between.url) as client:
        guard = Guard(client, name="billing")
        async with guard.once(delivery("warm")):
            pass
        async with between.silence(), asyncio.timeout(10):
            task = asyncio.ensure_future(guard.once(delivery("b")).__aenter__())
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()


@pytest.mark.parametrize("way", ["task twice", "scope"])
async def test_a_cancelled_caller_waits_for_the_reply(redis_url: str, way: str):
    """Else `abandon` could overtake `begin`, and the event would stay busy."""
    scope = anyio.CancelScope()

    async def handle() -> None:
        with scope:
            async with guard.once(delivery("b")):
                pytest.fail("begun")
        await asyncio.sleep(0)

    async with proxy(urlsplit(redis_url).port or 0) as between, redis.asyncio.Redis.from_url(between.url) as client:
        await client.flushall()
        guard = Guard(client, name="billing")
        async with guard.once(delivery("warm")):
            pass
        async with between.silence():
            task = asyncio.ensure_future(handle())
            for turn in range(200):
                if turn in (100, 120):
                    task.cancel() if way == "task twice" else scope.cancel()
                await asyncio.sleep(0)
            assert not task.done()
        await asyncio.wait([task])
        assert task.cancelled() == (way == "task twice")
        async with guard.once(delivery("b", claim=2)) as first:
            assert first


@pytest.mark.parametrize("way", ["task twice", "scope"])
async def test_a_cancelled_caller_waits_once_for_the_reply(way: str, monkeypatch: pytest.MonkeyPatch):
    """It neither leaves before, nor is busy meanwhile: a scope cancels again and again."""
    replied, scope, waits, wait = asyncio.Event(), anyio.CancelScope(), 0, asyncio.wait

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal waits
        waits += 1
        return wait(*arguments, **options)

    async def call() -> None:
        with scope:
            await async_guard._to_the_end(replied.wait())

    monkeypatch.setattr(asyncio, "wait", counted)
    task = asyncio.ensure_future(call())
    for turn in range(200):
        if turn in (100, 120):
            task.cancel() if way == "task twice" else scope.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    assert waits <= 2
    replied.set()
    await wait([task])
    assert task.cancelled() == (way == "task twice")


def after(turns: int, call: Callable[[], None]) -> None:
    """Calls after this many turns of the event loop."""
    if turns:
        asyncio.get_running_loop().call_soon(after, turns - 1, call)
    else:
        call()


async def test_a_delivery_during_another_one_is_to_be_repeated(client: Any):
    """It must not be acknowledged: the other one may still fail."""
    guard = Guard(client, name="billing", lease=30)
    async with guard.once(delivery(claim=1)):
        with pytest.raises(DeliveryInProgress) as refused:
            async with guard.once(delivery(claim=2)):
                pytest.fail("handled at the same time")
        assert 0 < refused.value.retry_after <= 30
        assert refused.value.status == 425
    async with guard.once(delivery(claim=3)) as first:
        assert not first


async def test_after_a_crash_the_next_delivery_begins_when_the_lease_has_ended(client: Any):
    guard = Guard(client, name="billing")
    await crash(guard, delivery(claim=1))
    with pytest.raises(DeliveryInProgress):
        async with guard.once(delivery(claim=2)):
            pass
    await end_leases(client)
    async with guard.once(delivery(claim=2)) as first:
        assert first


async def test_a_late_delivery_of_an_event_is_refused(client: Any):
    guard = Guard(client, name="billing")
    with suppress(ZeroDivisionError):
        async with guard.once(delivery(claim=7)):
            1 / 0  # noqa: B018
    with pytest.raises(StaleDelivery, match="under claim 5, after claim 7") as refused:
        async with guard.once(delivery(claim=5)):
            pytest.fail("a late delivery was handled")
    assert refused.value.status == 409
    async with guard.once(delivery(claim=7)) as first:  # the same claim, repeated by a proxy
        assert first
    async with guard.once(delivery(claim=5)) as first:  # it was handled: the relay may acknowledge it
        assert not first


async def test_a_late_delivery_of_an_ordering_key_is_refused(client: Any):
    guard = Guard(client, name="billing")
    async with guard.once(delivery("b", claim=9, key="order-7")) as first:
        assert first
    with pytest.raises(StaleDelivery):
        async with guard.once(delivery("a", claim=8, key="order-7")):
            pytest.fail("a late delivery was handled")
    async with guard.once(delivery("a", claim=10, key="order-7")) as first:
        assert first
    for other in (delivery("c", claim=8, key="order-8"), delivery("d", claim=8, key="order-7", source="/redbox/x")):
        async with guard.once(other) as first:
            assert first


async def test_claim_numbers_are_compared_as_numbers(client: Any):
    guard = Guard(client, name="billing")
    async with guard.once(delivery("a", claim=9, key="k")):
        pass
    async with guard.once(delivery("b", claim=2**53 - 1, key="k")) as first:
        assert first
    with pytest.raises(StaleDelivery):
        async with guard.once(delivery("c", claim=10, key="k")):
            pass


@pytest.mark.parametrize("key", ["{", "}", "{}", "a}b{c", "Ä %", ":", ""])
async def test_any_ordering_key(client: Any, key: str):
    guard = Guard(client, name="billing")
    async with guard.once(delivery("{a}:%", key=key, source="}{")) as first, first.transaction():
        pass
    async with guard.once(delivery("{a}:%", claim=2, key=key, source="}{")) as first:
        assert not first
    async with guard.once(delivery("{a}", claim=3, key=key, source="}{")) as first:
        assert first


async def test_a_lost_lease_is_reported(client: Any):
    guard = Guard(client, name="billing")
    with pytest.raises(LeaseLost, match="may be handled twice"):
        async with guard.once(delivery(claim=1)):
            await end_leases(client)
            async with guard.once(delivery(claim=2)) as first:
                assert first
    async with guard.once(delivery(claim=3)) as first:
        assert not first


async def test_a_lease_that_ended_unnoticed_is_not_lost(client: Any):
    guard = Guard(client, name="billing")
    async with guard.once(delivery(claim=1)):
        await end_leases(client)
    async with guard.once(delivery(claim=2)) as first:
        assert not first


async def test_a_failed_handling_does_not_end_that_of_its_successor(client: Any):
    guard = Guard(client, name="billing")
    outer = guard.once(delivery(claim=1))
    await outer.__aenter__()
    await end_leases(client)
    async with guard.once(delivery(claim=2)):
        await outer.__aexit__(ValueError, ValueError(), None)
        with pytest.raises(DeliveryInProgress):
            async with guard.once(delivery(claim=3)):
                pass


async def test_renewing(client: Any):
    guard = Guard(client, name="billing")
    async with guard.once(delivery(claim=1)) as attempt:
        await end_leases(client)
        await attempt.renew()
        with pytest.raises(DeliveryInProgress):
            async with guard.once(delivery(claim=2)):
                pass
        await end_leases(client)
        async with guard.once(delivery(claim=2)):
            pass
        with pytest.raises(LeaseLost):
            await attempt.renew()


async def test_a_transaction_commits_the_effect_and_the_record_together(client: Any):
    guard = Guard(client, name="billing")
    for claim in (1, 2):
        async with guard.once(delivery(claim=claim, key="7")) as first:
            if first:
                async with first.transaction() as pipe:
                    pipe.incr("{/redbox/b:7}:total")
    assert await client.get("{/redbox/b:7}:total") == b"1"


async def test_a_transaction_that_raises_changes_nothing(client: Any):
    guard = Guard(client, name="billing")
    with pytest.raises(ZeroDivisionError):
        async with guard.once(delivery(key="7")) as first, first.transaction() as pipe:
            pipe.incr("{/redbox/b:7}:total")
            1 / 0  # noqa: B018
    assert await client.get("{/redbox/b:7}:total") is None
    async with guard.once(delivery(claim=2, key="7")) as first:
        assert first


@pytest.mark.parametrize("moment", ["before", "during"])
async def test_a_transaction_after_a_lost_lease_changes_nothing(client: Any, moment: str):
    guard = Guard(client, name="billing")

    async def overtake() -> None:
        await end_leases(client)
        async with guard.once(delivery(claim=2, key="7")) as first, first.transaction() as pipe:
            pipe.incr("{/redbox/b:7}:total")

    with pytest.raises(LeaseLost, match="nothing was changed"):
        async with guard.once(delivery(claim=1, key="7")) as first:
            if moment == "before":
                await overtake()
            async with first.transaction() as pipe:
                pipe.incr("{/redbox/b:7}:total")
                if moment == "during":
                    await overtake()
    assert await client.get("{/redbox/b:7}:total") == b"1"


async def test_a_transaction_after_the_order_moved_on_changes_nothing(client: Any):
    """The event became DEAD while this process was slow, and the next event of its order was handled."""
    guard = Guard(client, name="billing")
    with pytest.raises(LeaseLost):
        async with guard.once(delivery("a", claim=1, key="7")) as first:
            async with guard.once(delivery("b", claim=2, key="7")):
                pass
            async with first.transaction() as pipe:
                pipe.incr("{/redbox/b:7}:total")
    assert await client.get("{/redbox/b:7}:total") is None


async def test_a_delivery_that_is_refused_does_not_disturb_a_transaction(client: Any):
    guard = Guard(client, name="billing")
    async with guard.once(delivery(claim=2, key="7")) as first, first.transaction() as pipe:
        pipe.incr("{/redbox/b:7}:total")
        for claim, error in ((3, DeliveryInProgress), (1, StaleDelivery)):
            with pytest.raises(error):
                async with guard.once(delivery(claim=claim, key="7")):
                    pass
    assert await client.get("{/redbox/b:7}:total") == b"1"


async def test_a_transaction_is_not_executed_before_its_block_ends(client: Any):
    """The effect would be there without the record, and the next delivery would repeat it."""
    guard = Guard(client, name="billing")
    with pytest.raises(UsageError, match="when the block ends"):
        async with guard.once(delivery(key="7")) as first, first.transaction() as pipe:
            await pipe.incr("{/redbox/b:7}:total").execute()
    assert await client.get("{/redbox/b:7}:total") is None
    async with guard.once(delivery(claim=2, key="7")) as first, first.transaction() as pipe:
        assert first
        with pytest.raises(UsageError):
            await pipe.execute()
        pipe.incr("{/redbox/b:7}:total")
    assert await client.get("{/redbox/b:7}:total") == b"1"
    async with guard.once(delivery(claim=3, key="7")) as first:
        assert not first


async def test_an_attempt_that_has_nothing_to_do_has_no_transaction(client: Any):
    guard = Guard(client, name="billing")
    async with guard.once(delivery()):
        pass
    async with guard.once(delivery()) as attempt:
        with pytest.raises(UsageError):
            await attempt.renew()
        with pytest.raises(UsageError):
            async with attempt.transaction():
                pass


async def test_many_deliveries_at_once_handle_an_event_once(client: Any):
    guard, handled, refused = Guard(client, name="billing"), [], []

    async def handle(claim: int) -> None:
        try:
            async with guard.once(delivery(claim=claim)) as first:
                if first:
                    await asyncio.sleep(0)
                    handled.append(claim)
        except (DeliveryInProgress, StaleDelivery) as error:
            refused.append(error)

    await asyncio.gather(*(handle(claim) for claim in range(30)))
    assert len(handled) == 1


async def test_the_memory_is_bounded_by_age(client: Any):
    guard = Guard(client, name="billing", lease=5, remember=100)
    await crash(guard, delivery("a", key="7"))
    async with guard.once(delivery("b")):
        pass
    with suppress(ZeroDivisionError):
        async with guard.once(delivery("c")):
            1 / 0  # noqa: B018
    keys = [key async for key in client.scan_iter(match="*")]
    assert len(keys) == 4
    for key in keys:
        assert 90_000 < await client.pttl(key) <= 100_000, key


async def test_a_record_that_was_removed_is_written_again(client: Any):
    guard = Guard(client, name="billing")
    async with guard.once(delivery()):
        await client.flushall()
    async with guard.once(delivery(claim=2)) as first:
        assert not first


async def test_scripts_that_the_server_forgot_are_sent_again(client: Any):
    guard = Guard(client, name="billing")
    async with guard.once(delivery()):
        await client.script_flush()
    async with guard.once(delivery()) as first:
        assert not first


# --- one server ------------------------------------------------------------------------------------------------


async def test_a_repeated_command_changes_nothing(redis_url: str):
    """redis-py repeats a command whose reply was lost."""

    class Twice(redis.asyncio.Redis):
        async def evalsha(self, *arguments: Any) -> Any:
            await super().evalsha(*arguments)
            return await super().evalsha(*arguments)

    client = Twice.from_url(redis_url)
    await client.flushall()
    guard = Guard(client, name="billing")
    async with guard.once(delivery()) as first:
        assert first
    async with guard.once(delivery()) as first:
        assert not first
    await client.aclose()


async def test_a_client_that_decodes_replies(redis_url: str):
    client = redis.asyncio.Redis.from_url(redis_url, decode_responses=True)
    await client.flushall()
    guard = Guard(client, name="billing")
    async with guard.once(delivery(key="7")) as first, first.transaction() as pipe:
        pipe.set("x", 1)
    async with guard.once(delivery(claim=2)) as first:
        assert first
    await client.aclose()


async def test_an_event_can_be_finished_while_the_server_is_out_of_memory(redis_url: str):
    client = redis.asyncio.Redis.from_url(redis_url)
    await client.flushall()
    guard = Guard(client, name="billing")
    try:
        async with guard.once(delivery()):
            await client.config_set("maxmemory", 1)
        with pytest.raises(redis.exceptions.ResponseError, match="maxmemory"):
            async with guard.once(delivery("b", key="7")):
                pytest.fail("began without a record")
    finally:
        await client.config_set("maxmemory", 0)
    assert not await client.exists("redbox:consumer:billing:fence:{/redbox/b:7}")
    async with guard.once(delivery(claim=2)) as first:
        assert not first
    await client.aclose()


async def test_the_store_is_unreachable(redis_url: str):
    client = redis.asyncio.Redis.from_url(f"redis://127.0.0.1:{servers.free_port()}")
    with pytest.raises(redis.exceptions.ConnectionError):
        async with Guard(client, name="billing").once(delivery()):
            pytest.fail("handled without a guard")
    await client.aclose()


async def test_the_documented_permissions_suffice(redis_url: str):
    (rule,) = re.findall(r"```\nACL SETUSER billing-consumer ([^`]*)```", PERMISSIONS)
    admin = redis.asyncio.Redis.from_url(redis_url)
    await admin.flushall()
    await admin.execute_command("ACL", "SETUSER", "billing-consumer", *rule.replace("PASSWORD", "secret").split())
    client = redis.asyncio.Redis.from_url(redis_url, username="billing-consumer", password="secret")
    try:
        guard = Guard(client, name="billing")
        async with guard.once(delivery(key="7")) as first, first.transaction():
            pass
        with suppress(ZeroDivisionError):
            async with guard.once(delivery("b")):
                1 / 0  # noqa: B018
        async with guard.once(delivery("b", claim=2)) as first:
            assert first
    finally:
        await client.aclose()
        await admin.acl_deluser("billing-consumer")
        await admin.aclose()


async def test_what_an_id_costs(redis_url: str):
    """As docs/consumers.md says."""
    client = redis.asyncio.Redis.from_url(redis_url)
    await client.flushall()
    guard = Guard(client, name="billing")
    event_id = "01a1e2c3-9e3a-74dc-a5df-8eba6c1d3857"
    async with guard.once(delivery(event_id, claim=123_456)):
        pass
    (key,) = await client.keys("*")
    assert await client.memory_usage(key) < 250
    await client.aclose()


# --- code that is not async ------------------------------------------------------------------------------------


def test_sync_an_event_is_handled_once(sync_client: Any):
    guard, handled = SyncGuard(sync_client, name="billing"), []
    for claim in (1, 2):
        with guard.once(delivery(claim=claim, key="7")) as first:
            if first:
                handled.append(claim)
    assert handled == [1]
    with pytest.raises(StaleDelivery), guard.once(delivery("b", claim=0, key="7")):
        pass


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, ValueError])
def test_sync_an_interrupt_while_it_begins(
    sync_client: Any, monkeypatch: pytest.MonkeyPatch, interrupt: type[BaseException]
):
    """The next delivery begins at once."""
    guard, run = SyncGuard(sync_client, name="billing"), SyncAttempt._run

    def interrupted(attempt: SyncAttempt, script: Script, *arguments: Any) -> Any:
        found = run(attempt, script, *arguments)
        if script is BEGIN:
            raise interrupt
        return found

    with monkeypatch.context() as patched, pytest.raises(interrupt):
        patched.setattr(SyncAttempt, "_run", interrupted)
        guard.once(delivery()).__enter__()
    with guard.once(delivery(claim=2)) as first:
        assert first


def test_sync_errors_and_overlaps(sync_client: Any):
    guard = SyncGuard(sync_client, name="billing")
    with pytest.raises(ZeroDivisionError), guard.once(delivery()):
        with pytest.raises(DeliveryInProgress), guard.once(delivery(claim=2)):
            pass
        1 / 0  # noqa: B018
    with guard.once(delivery(claim=2)) as attempt:
        assert attempt
        attempt.renew()
    with guard.once(delivery(claim=3)) as attempt:
        assert not attempt


def test_sync_a_lost_lease(sync_client: Any):
    guard = SyncGuard(sync_client, name="billing")
    (record,) = guard.once(delivery())._handling.keys

    def overtake(claim: int) -> None:
        sync_client.hset(record, "until", "1")
        with guard.once(delivery(claim=claim)) as first:
            assert first

    with pytest.raises(LeaseLost, match="twice"), guard.once(delivery(claim=1)):
        overtake(2)
    sync_client.delete(record)
    with pytest.raises(LeaseLost), guard.once(delivery(claim=3)) as attempt:
        overtake(4)
        attempt.renew()
    for before in (True, False):
        sync_client.delete(record)
        with pytest.raises(LeaseLost, match="nothing was changed"), guard.once(delivery(claim=5)) as attempt:
            if before:
                overtake(6)
            with attempt.transaction() as pipe:
                pipe.set("{/redbox/b:a}:x", 1)
                if not before:
                    overtake(6)
    assert not sync_client.exists("{/redbox/b:a}:x")


def test_sync_a_transaction(sync_client: Any):
    guard = SyncGuard(sync_client, name="billing")
    for claim in (1, 2):
        with guard.once(delivery(claim=claim, key="7")) as first:
            if first:
                with first.transaction() as pipe:
                    pipe.incr("{/redbox/b:7}:total")
    assert sync_client.get("{/redbox/b:7}:total") == b"1"


def test_sync_a_transaction_is_not_executed_before_its_block_ends(sync_client: Any):
    guard = SyncGuard(sync_client, name="billing")
    with guard.once(delivery(key="7")) as first, first.transaction() as pipe:
        with pytest.raises(UsageError, match="when the block ends"):
            pipe.incr("{/redbox/b:7}:total").execute()
        assert sync_client.get("{/redbox/b:7}:total") is None
    assert sync_client.get("{/redbox/b:7}:total") == b"1"


def test_sync_threads(redis_url: str):
    client = redis.Redis.from_url(redis_url)
    client.flushall()
    guard, handled, gate = SyncGuard(client, name="billing"), [], threading.Barrier(8)

    def handle(claim: int) -> None:
        gate.wait(20)
        with suppress(DeliveryInProgress, StaleDelivery), guard.once(delivery(claim=claim)) as first:
            if first:
                handled.append(claim)

    with ThreadPoolExecutor(8) as pool:
        [*pool.map(handle, range(8))]
    assert len(handled) == 1
    client.close()


def test_async_and_sync_code_share_their_memory(redis_url: str):
    async def handle() -> bool:
        async with (
            redis.asyncio.Redis.from_url(redis_url) as client,
            Guard(client, name="billing").once(delivery()) as first,
        ):
            return bool(first)

    client = redis.Redis.from_url(redis_url)
    client.flushall()
    assert asyncio.run(handle())
    with SyncGuard(client, name="billing").once(delivery(claim=2)) as first:
        assert not first
    client.close()


# --- arguments -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guard", [Guard, SyncGuard])
@pytest.mark.parametrize(
    "options", [{"name": ""}, {"name": "a:b"}, {"name": "a", "lease": 0}, {"name": "a", "lease": 10, "remember": 9}]
)
def test_options_are_checked(guard: Any, options: dict[str, Any]):
    with pytest.raises(UsageError):
        guard(None, **options)


@pytest.mark.parametrize("guard", [Guard, SyncGuard])
@pytest.mark.parametrize(
    ("event", "options"),
    [
        ("", {}),
        ("a b", {}),
        (5, {}),
        ("a", {"claim": -1}),
        ("a", {"claim": "7"}),
        ("a", {"claim": 10**18}),  # no claim number of a box; the scripts count in doubles
        ("a", {"source": 7}),
        ("a", {"ordering_key": 7}),
        ("a", {"ordering_key": "\ud800"}),
        (delivery(), {"claim": 7}),
    ],
)
def test_arguments_are_checked(guard: Any, event: Any, options: dict[str, Any]):
    with pytest.raises(UsageError):
        guard(None, name="billing").once(event, **options)


# --- the scripts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "keys", "arguments"),
    [
        (BEGIN, ["record", "fence"], ("token", "claim", "lease", "remember")),
        (FINISH, ["record"], ("token", "claim", "remember")),
        (ABANDON, ["record"], ("token",)),
    ],
)
def test_the_headers_of_the_scripts_are_true(script: Script, keys: list[str], arguments: tuple[str, ...]):
    text = (LUA / f"{script.name}.lua").read_text()
    header = header_of(text)
    assert header.purpose.startswith(f"{script.name.removeprefix('consumer/')}: ")
    assert header.guarantee
    assert [key.split()[0] for key in header.keys] == keys
    assert (header.argv, header.each, header.errors) == (arguments, (), ())
    code = code_of(text)
    assert {int(number) for number in re.findall(r"ARGV\[(\d+)\]", code)} == set(range(1, len(arguments) + 1))
    assert {int(number) for number in re.findall(r"KEYS\[(\d+)\]", code)} == set(range(1, len(keys) + 1))
    assert set(re.findall(r'"([A-Z]{4,})"', re.sub(r'redis\.call\("[A-Z]+"', "", code))) == set(
        re.findall(r"\b([A-Z]{4,})\b", header.returns)
    )
    assert not script.text.startswith("#!")  # servers before Redis 7 do not parse it


def test_every_script_of_the_kit_is_tested():
    assert {path.stem for path in (LUA / "consumer").glob("*.lua")} == {"begin", "finish", "abandon"}
