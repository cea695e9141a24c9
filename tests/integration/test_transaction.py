"""Transactions: the events and the caller's own writes, together or not at all, on every store."""

# ruff: noqa: PT012  # a transaction is a block of its own

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from redbox import Box, Conflict, Event, IdReused, InvalidEvent, RedboxError
from redbox.errors import DurabilityNotReached, PartlyCommitted, StoreFull, TransactionFailed, UsageError
from redbox.store import transaction as transact
from redbox.store.server import durability
from redbox.testing import check_invariants
from tests import servers

pytestmark = pytest.mark.req("SC-4", "SC-9")


async def ask(box: Box, *command: Any) -> Any:
    """One plain command to the server that holds the box."""
    (reply,) = await box._store.exchange([command])
    return reply


class Interrupted:
    """A box's wire on which something happens in the middle of a transaction: after its check, before its EXEC."""

    def __init__(self, wire: Any, happening: Callable[[], Awaitable[Any]], times: int = 1) -> None:
        self._wire = wire
        self._happening = happening
        self._times = times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wire, name)

    @asynccontextmanager
    async def session(self, key: str) -> AsyncIterator[Any]:
        async with self._wire.session(key) as talk:

            async def interrupted(commands: Sequence[tuple[Any, ...]]) -> list[Any]:
                if commands[0][0] == "MULTI" and self._times:
                    self._times -= 1
                    await self._happening()
                return list(await talk(commands))

            yield interrupted


async def interrupt(box: Box, happening: Callable[[], Awaitable[Any]], times: int = 1) -> None:
    exchanges = box._store.exchanges
    exchanges._wire = Interrupted(await exchanges.wire(), happening, times)  # type: ignore[assignment]


# --- a server in trouble -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "between"])
@pytest.mark.parametrize("own", [True, False], ids=["with-writes", "events-only"])
@pytest.mark.usefixtures("redbox_runner")
async def test_out_of_memory_is_one_error(when: str, own: bool):
    """Whether the memory runs out before the transaction or in the middle of it: StoreFull, and nothing is written."""
    event = Event("user.created")
    with servers.redis_server() as server, server.client() as client:
        async with Box.open(server.url) as box:
            await box.put(Event("user.created"))

            async def run_out() -> None:
                client.config_set("maxmemory", 1)

            if when == "before":
                await run_out()
            else:
                await interrupt(box, run_out)
            with pytest.raises(StoreFull, match="out of memory; nothing was written"):
                async with box.transaction() as tx:
                    if own:
                        tx.redis.set("mine", "x")
                    tx.put(event)
            client.config_set("maxmemory", 0)
            assert client.exists("mine") == 0
            assert await box.get(event.event_id) is None


# --- commit ----------------------------------------------------------------------------------------------------


async def test_both_are_committed(box: Box):
    async with box.transaction() as tx:
        mine = tx.key("user:42")
        tx.redis.hset(mine, mapping={"name": "Ada"})
        tx.redis.hincrby(mine, "visits", 5)
        first = tx.put(Event("user.created", {"id": 42}))
        second = tx.put(Event("user.welcomed", {"id": 42}, ordering_key="user:42", unique_key="user:42"))
    assert tx.results == [1, 5]
    assert [(receipt.event_id, receipt.created) for receipt in tx.receipts] == [(first, True), (second, True)]
    assert await ask(box, "HGET", mine, "name") == b"Ada"
    assert {claim.event_id for claim in await box.claim("relay-1")} == {first, second}
    assert await check_invariants(box) == []


async def test_nothing_is_seen_before_the_block_ends(box: Box):
    async with box.transaction() as tx:
        mine = tx.key("user:42")
        tx.redis.set(mine, "Ada")
        event_id = tx.put(Event("user.created"))
        assert await ask(box, "EXISTS", mine) == 0
        assert await box.get(event_id) is None
    assert await box.get(event_id) is not None


async def test_an_empty_block_sends_nothing(box: Box):
    async with box.transaction() as tx:
        pass
    assert (tx.results, tx.receipts) == ([], [])
    assert not await box.exists()


async def test_only_the_callers_writes(box: Box):
    async with box.transaction() as tx:
        tx.redis.set(tx.key("mine"), "x").incr(tx.key("count"))
    assert tx.results[1] == 1
    assert await ask(box, "GET", tx.key("mine")) == b"x"


async def test_only_events(box: Box):
    async with box.transaction() as tx:
        ids = [tx.put(Event("user.created", {"id": number}, ordering_key="o")) for number in range(5)]
    assert [receipt.event_id for receipt in tx.receipts] == ids
    assert [record.event_id async for record in box.list()] == ids


async def test_an_event_that_exists_commits_and_is_reported(box: Box):
    event = Event("user.created", {"id": 42}, unique_key="user:42")
    await box.put(event)
    async with box.transaction() as tx:
        tx.redis.set(tx.key("mine"), "x")
        tx.put(event)
    assert [receipt.created for receipt in tx.receipts] == [False]
    assert await ask(box, "GET", tx.key("mine")) == b"x"


@pytest.mark.needs("server")
async def test_a_script_flush_before_it_does_not_matter(box: Box):
    await box.put(Event("warm.up"))
    await ask(box, "SCRIPT", "FLUSH")
    async with box.transaction() as tx:
        tx.redis.set(tx.key("mine"), "x")
        event_id = tx.put(Event("user.created"))
    assert await box.get(event_id) is not None


# --- refusal ---------------------------------------------------------------------------------------------------


async def refused(box: Box, *events: Event) -> RedboxError:
    """The error of a transaction with a write of the caller's and these events; nothing may be left of it."""
    before = [record.event_id async for record in box.list()]
    mine = ""
    with pytest.raises(RedboxError) as caught:
        async with box.transaction() as tx:
            mine = tx.key("mine")
            tx.redis.set(mine, "x")
            for event in events:
                tx.put(event)
    assert await ask(box, "EXISTS", mine) == 0
    assert [record.event_id async for record in box.list()] == before
    assert await check_invariants(box) == []
    return caught.value


@pytest.mark.req("MQ-2", "MQ-4")
async def test_a_held_unique_key_refuses_all_of_it(box: Box):
    holder = await box.put(Event("user.created", unique_key="user:42"))
    error = await refused(box, Event("user.created"), Event("user.created", unique_key="user:42"))
    assert isinstance(error, Conflict)
    assert error.holder == holder.event_id


@pytest.mark.req("MQ-4")
async def test_two_events_of_one_block_cannot_share_a_unique_key(box: Box):
    error = await refused(box, Event("a", unique_key="user:42"), Event("b", unique_key="user:42"))
    assert isinstance(error, Conflict)


@pytest.mark.req("EM-1")
async def test_an_id_with_other_content_refuses_all_of_it(box: Box):
    await box.put(Event("user.created", {"id": 1}, event_id=f"{box.name}-1"))
    error = await refused(box, Event("user.created"), Event("user.created", {"id": 2}, event_id=f"{box.name}-1"))
    assert isinstance(error, IdReused)
    assert error.difference == "payload"


async def test_an_invalid_event_refuses_all_of_it(box: Box):
    mine = ""
    with pytest.raises(InvalidEvent):
        async with box.transaction() as tx:
            mine = tx.key("mine")
            tx.redis.set(mine, "x")
            tx.put(Event("user.created", object()))
    assert await ask(box, "EXISTS", mine) == 0


async def test_a_full_box_refuses_all_of_it(box: Box):
    await box.operate.configure(max_pending=1, who="ada", why="a test")
    await box.put(Event("user.created"))
    error = await refused(box, Event("user.created"))
    assert "max_pending" in str(error)


async def test_an_exception_in_the_block_sends_nothing(box: Box):
    mine = event_id = ""
    with pytest.raises(ZeroDivisionError):
        async with box.transaction() as tx:
            mine = tx.key("mine")
            tx.redis.set(mine, "x")
            event_id = tx.put(Event("user.created"))
            raise ZeroDivisionError
    assert await ask(box, "EXISTS", mine) == 0
    assert await box.get(event_id) is None
    assert (tx.results, tx.receipts) == ([], [])


@pytest.mark.parametrize("command", ["multi", "EXEC", "Discard"])
async def test_the_transactions_own_commands_are_refused(box: Box, command: str):
    with pytest.raises(UsageError, match="plain commands only"):
        async with box.transaction() as tx:
            tx.redis.execute_command(command)
            tx.put(Event("user.created"))
    assert not await box.exists()


@pytest.mark.parametrize("store", ["memory"])
@pytest.mark.parametrize("habit", ["execute", "watch"])
async def test_commands_that_would_be_sent_at_once_are_refused(box: Box, habit: str):
    """`tx.redis` only records: it has no server of its own to send to, least of all one on localhost:6379."""
    with pytest.raises(UsageError):
        async with box.transaction() as tx, asyncio.timeout(1):
            if habit == "watch":
                await tx.redis.watch(tx.key("mine"))
            tx.redis.set(tx.key("mine"), "x")
            if habit == "execute":
                await tx.redis.execute()
    assert await ask(box, "EXISTS", tx.key("mine")) == 0


# --- racing ----------------------------------------------------------------------------------------------------


@pytest.mark.req("MQ-2")
async def test_a_put_that_takes_the_unique_key_in_between_is_a_conflict(box: Box):
    await box.put(Event("user.created"))  # the first put of a box changes the box as well, and that is watched too
    await interrupt(box, lambda: box.put(Event("user.created", unique_key="user:42")))
    with pytest.raises(Conflict):
        async with box.transaction() as tx:
            tx.redis.set(tx.key("mine"), "x")
            tx.put(Event("user.created", unique_key="user:42"))
    assert await ask(box, "EXISTS", tx.key("mine")) == 0
    assert (await box.stats()).totals["put"] == 2


@pytest.mark.req("EM-1")
async def test_a_put_of_the_same_id_in_between_is_found(box: Box):
    event = Event("user.created", {"id": 42})
    await interrupt(box, lambda: box.put(event))
    async with box.transaction() as tx:
        tx.redis.set(tx.key("mine"), "x")
        tx.put(event)
    assert [receipt.created for receipt in tx.receipts] == [False]
    assert await ask(box, "GET", tx.key("mine")) == b"x"
    assert (await box.stats()).totals["put"] == 1


async def test_a_change_of_the_box_in_between_is_looked_at_again(box: Box):
    async def shrink() -> None:
        await box.operate.configure(max_pending=1, who="ada", why="a test")

    await box.put(Event("user.created"))
    await interrupt(box, shrink)
    with pytest.raises(RedboxError, match="max_pending"):
        async with box.transaction() as tx:
            tx.redis.set(tx.key("mine"), "x")
            tx.put(Event("user.created"))
    assert await ask(box, "EXISTS", tx.key("mine")) == 0


async def test_a_transaction_whose_keys_keep_changing_gives_up_and_has_written_nothing(
    box: Box, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(transact, "TURNS", 3)

    async def meddle() -> None:
        await box.operate.pause(who="ada", why="a test")
        await box.operate.resume(who="ada", why="a test")

    await interrupt(box, meddle, times=3)
    with pytest.raises(TransactionFailed, match="changed the same keys 3 times in a row; nothing was written"):
        async with box.transaction() as tx:
            tx.redis.set(tx.key("mine"), "x")
            tx.put(Event("user.created"))
    assert await ask(box, "EXISTS", tx.key("mine")) == 0
    assert "put" not in (await box.stats()).totals


@pytest.mark.req("MQ-2", "PL-7")
async def test_transactions_that_race_for_a_unique_key_lose_no_event(box: Box):
    """Every committed write of a caller's has its event, and the other way round."""
    committed: set[str] = set()

    async def racer(name: str) -> None:
        for _ in range(50):
            try:
                async with box.transaction() as tx:
                    event_id = tx.put(Event("user.created", unique_key="user:42"))
                    tx.redis.sadd(tx.key("written"), event_id)
            except Conflict:
                await box.ack(await box.claim(name))  # frees the key
            except TransactionFailed:
                pass
            else:
                committed.add(event_id)

    await asyncio.gather(racer("relay-1"), racer("relay-2"))
    written = {raw.decode() for raw in await ask(box, "SMEMBERS", box.transaction().key("written"))}
    stored = {record.event_id async for record in box.list()}
    assert written == stored == committed
    assert len(stored) >= 2
    assert await check_invariants(box) == []


# --- the caller's own commands ---------------------------------------------------------------------------------


async def test_a_failing_command_of_the_caller_is_reported_and_the_events_are_stored(box: Box):
    event_id = ""
    with pytest.raises(
        PartlyCommitted, match=r"your own command LPUSH failed.*events and your other commands are committed"
    ):
        async with box.transaction() as tx:
            tx.redis.set(tx.key("mine"), "x")
            tx.redis.lpush(tx.key("mine"), "y")
            event_id = tx.put(Event("user.created"))
    assert await box.get(event_id) is not None
    assert [receipt.created for receipt in tx.receipts] == [True]
    assert isinstance(tx.results[1], Exception)
    assert await ask(box, "GET", tx.key("mine")) == b"x"


async def test_a_command_that_does_not_exist_commits_nothing(box: Box):
    event_id = ""
    with pytest.raises(TransactionFailed, match="did not commit, nothing was written"):
        async with box.transaction() as tx:
            tx.redis.set(tx.key("mine"), "x")
            tx.redis.execute_command("NOSUCHCOMMAND")
            event_id = tx.put(Event("user.created"))
    assert await ask(box, "EXISTS", tx.key("mine")) == 0
    assert await box.get(event_id) is None
    async with box.transaction() as tx:  # the connection is clean again
        tx.put(Event("user.created"))
    assert [receipt.created for receipt in tx.receipts] == [True]


@pytest.mark.parametrize("store", ["cluster"])
async def test_a_key_of_another_slot_is_refused_on_a_cluster(box: Box):
    event_id = ""
    for key in ("user:1", "user:2", "user:3", "user:4"):  # some on the box's node, some on others
        with pytest.raises(TransactionFailed, match=r"nothing was written.*tx\.key"):
            async with box.transaction() as tx:
                tx.redis.set(tx.key("mine"), "x")
                tx.redis.set(key, "x")
                event_id = tx.put(Event("user.created"))
        assert await ask(box, "EXISTS", tx.key("mine")) == 0
        assert await box.get(event_id) is None


# --- durability ------------------------------------------------------------------------------------------------


@pytest.mark.req("SC-1")
@pytest.mark.needs("server")
async def test_a_durability_that_is_not_reached_is_reported_and_the_transaction_is_committed(
    box: Box, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(durability, "TIMEOUT", 0.05)
    event_id = ""
    with pytest.raises(DurabilityNotReached, match="the transaction was committed, but replicas=1 was not confirmed"):
        async with box.transaction(durability="replicas=1") as tx:
            event_id = tx.put(Event("user.created"))
    assert await box.get(event_id) is not None


@pytest.mark.req("SC-1")
@pytest.mark.parametrize("store", ["embedded"])
async def test_fsync_is_granted_by_the_embedded_server(box: Box):
    async with box.transaction(durability="fsync") as tx:
        tx.put(Event("user.created"))
    assert tx.receipts[0].durability == "fsync"


async def test_a_closed_box_begins_none(box: Box):
    await box.aclose()
    with pytest.raises(UsageError, match="closed"):
        box.transaction()
