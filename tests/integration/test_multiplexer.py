"""One connection for all callers: each gets its own replies, and none is affected by another."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis.asyncio
from redis.exceptions import ConnectionError, DataError, NoScriptError, ReadOnlyError, TimeoutError

from redbox import Box, Event
from redbox.store.wire.multiplexer import Multiplexer
from redbox.testing.plugin import new_box_name
from tests import servers

pytestmark = pytest.mark.usefixtures("redbox_runner")


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Server]:
    with servers.redis_server() as started:
        yield started


@asynccontextmanager
async def connected_to(server: servers.Server, **options: Any) -> AsyncIterator[Multiplexer]:
    client = redis.asyncio.Redis(host=server.host, port=server.port, **options)
    connection = await client.connection_pool.get_connection()
    multiplexer = Multiplexer.take_over(connection)
    assert multiplexer is not None
    try:
        yield multiplexer
    finally:
        await client.connection_pool.release(await multiplexer.give_back())
        await client.aclose()


# --- taking over -------------------------------------------------------------------------------------------------


async def test_a_connection_of_the_installed_redis_py_can_be_taken_over(server: servers.Server):
    async with connected_to(server) as multiplexer:
        assert await multiplexer.exchange([("PING",)]) == [b"PONG"]


async def test_a_unix_socket_can_be_taken_over(tmp_path: Any):
    with servers.redis_server(unixsocket=str(tmp_path / "s")):
        client = redis.asyncio.Redis(unix_socket_path=str(tmp_path / "s"))
        multiplexer = Multiplexer.take_over(await client.connection_pool.get_connection())
        assert multiplexer is not None
        assert await multiplexer.exchange([("PING",)]) == [b"PONG"]
        await client.connection_pool.release(await multiplexer.give_back())
        await client.aclose()


async def test_a_connection_without_a_socket_is_not_taken_over():
    assert Multiplexer.take_over(object()) is None


async def test_a_connection_that_was_given_back_works_again(server: servers.Server):
    client = redis.asyncio.Redis(host=server.host, port=server.port, max_connections=1)
    multiplexer = Multiplexer.take_over(await client.connection_pool.get_connection())
    assert multiplexer is not None
    await client.connection_pool.release(await multiplexer.give_back())
    assert await client.ping()
    await client.aclose()


async def test_the_applications_client_is_as_before_when_the_box_is_closed(server: servers.Server):
    client = redis.asyncio.Redis(host=server.host, port=server.port, max_connections=2)
    async with Box.open(client=client, name=new_box_name()) as box:
        await box.put(Event("user.created"))
    assert await asyncio.gather(*[client.ping() for _ in range(2)]) == [True, True]
    await client.aclose()


async def test_concurrent_puts_share_one_connection(server: servers.Server):
    with server.client() as look:
        before = len(look.client_list())
        async with Box.open(server.url, name=new_box_name()) as box:
            await asyncio.gather(*[box.put(Event("user.created")) for _ in range(200)])
            await asyncio.gather(*[box.stats() for _ in range(20)])
            assert len(look.client_list()) == before + 1


# --- replies -----------------------------------------------------------------------------------------------------


async def test_every_exchange_gets_its_own_replies_in_its_own_order(server: servers.Server):
    async with connected_to(server) as multiplexer:
        sizes = [1, 70_000, 3, 300_000, 5]
        exchange = multiplexer.exchange
        asked = [exchange([("ECHO", f"{n}-{k}" + "x" * sizes[n % 5]) for k in range(3)]) for n in range(200)]
        replies = await asyncio.gather(*asked)
        assert replies == [[f"{n}-{k}{'x' * sizes[n % 5]}".encode() for k in range(3)] for n in range(200)]


async def test_an_error_reply_is_returned_as_redis_py_would_raise_it(server: servers.Server):
    async with connected_to(server) as multiplexer:
        missing, pong, wrong = await multiplexer.exchange([("EVALSHA", "0" * 40, 0), ("PING",), ("NOSUCH",)])
        assert isinstance(missing, NoScriptError)
        assert pong == b"PONG"
        assert "unknown command" in str(wrong)


async def test_a_command_that_cannot_be_encoded_sends_nothing(server: servers.Server):
    async with connected_to(server) as multiplexer:
        with pytest.raises(DataError):
            await multiplexer.exchange([("PING",), ("SET", "a", object())])
        assert await multiplexer.exchange([("PING",)]) == [b"PONG"]


async def test_push_messages_are_ignored(server: servers.Server):
    async with connected_to(server, protocol=3) as multiplexer:
        await multiplexer.exchange([("CLIENT", "TRACKING", "ON"), ("SET", "watched", "1"), ("GET", "watched")])
        with server.client() as other:
            other.set("watched", "2")  # the server now pushes a message to this connection
        assert await multiplexer.exchange([("ECHO", "a")]) == [b"a"]
        assert await multiplexer.exchange([("GET", "watched")]) == [b"2"]


async def test_a_cancelled_exchange_does_not_affect_others(server: servers.Server):
    async with connected_to(server) as multiplexer:
        first = asyncio.ensure_future(multiplexer.exchange([("ECHO", "first")]))
        second = asyncio.ensure_future(multiplexer.exchange([("ECHO", "second")]))
        await asyncio.sleep(0)
        first.cancel()
        assert await second == [b"second"]
        assert await multiplexer.exchange([("ECHO", "third")]) == [b"third"]


async def test_writers_wait_while_the_server_reads_slowly(server: servers.Server):
    async with connected_to(server) as multiplexer:
        multiplexer.pause_writing()
        waiting = asyncio.ensure_future(multiplexer.exchange([("ECHO", "late")]))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        multiplexer.resume_writing()
        assert await waiting == [b"late"]


# --- failures ----------------------------------------------------------------------------------------------------


async def test_when_the_connection_breaks_every_pending_exchange_fails(server: servers.Server):
    async with connected_to(server) as multiplexer:
        (number,) = await multiplexer.exchange([("CLIENT", "ID")])
        blocked = [asyncio.ensure_future(multiplexer.exchange([("BLPOP", "nothing", 0)])) for _ in range(3)]
        await asyncio.sleep(0.05)
        with server.client() as other:
            other.client_kill_filter(_id=number)
        for each in blocked:
            with pytest.raises(ConnectionError):
                await each
        assert multiplexer.retired
        with pytest.raises(ConnectionError):
            await multiplexer.exchange([("PING",)])


async def test_a_silent_server_is_given_up_after_the_time_limit(server: servers.Server):
    async with connected_to(server, socket_timeout=0.3) as multiplexer:
        await multiplexer.exchange([("PING",)])
        os.kill(server.pid, signal.SIGSTOP)
        try:
            with pytest.raises(TimeoutError, match=r"0\.3 s"):
                await multiplexer.exchange([("PING",)])
        finally:
            os.kill(server.pid, signal.SIGCONT)
        assert multiplexer.retired


async def test_a_server_that_keeps_answering_is_not_given_up(server: servers.Server):
    async with connected_to(server, socket_timeout=1.0) as multiplexer:
        slow = [multiplexer.exchange([("BLPOP", "nothing", 0.4)]) for _ in range(4)]
        assert await asyncio.gather(*slow) == [[None]] * 4


async def test_after_a_failover_the_next_exchange_gets_another_connection(server: servers.Server):
    async with Box.open(server.url, name=new_box_name()) as box:
        await box.put(Event("user.created"))
        wire = await box._store.exchanges.wire()
        before = wire._multiplexers.shared("")
        with server.client() as look:
            look.replicaof("127.0.0.1", 1)
            (refusal,) = await before.exchange([("SET", "a", "1")])
            assert isinstance(refusal, ReadOnlyError)
            look.replicaof("NO", "ONE")
        assert before.retired
        await box.put(Event("user.created"))
        assert wire._multiplexers.shared("") is not before


async def test_a_server_that_does_not_speak_the_protocol_is_given_up():
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()
        ended.set()

    ended = asyncio.Event()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    connection = redis.asyncio.Connection(host="127.0.0.1", port=port)
    connection._reader, connection._writer = reader, writer
    multiplexer = Multiplexer.take_over(connection)
    assert multiplexer is not None
    with pytest.raises(ConnectionError, match="does not speak the Redis protocol"):
        await multiplexer.exchange([("PING",)])
    await multiplexer.give_back()
    await ended.wait()
    await asyncio.sleep(0.01)
    server.close()


async def test_waiting_for_replicas_delays_no_other_put(server: servers.Server):
    async with Box.open(server.url, name=new_box_name()) as box:
        await box.put(Event("user.created"))
        waiting = asyncio.ensure_future(box.put(Event("user.created"), durability="replicas=1"))
        await asyncio.sleep(0.1)
        await asyncio.wait_for(box.put(Event("user.created")), 1)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.wait([waiting])


async def test_a_login_that_has_ended_retires_the_connection(server: servers.Server):
    with server.client() as look:
        look.execute_command("ACL", "SETUSER", "guest", "on", ">secret", "~*", "&*", "+@all")
        async with Box.open(f"redis://guest:secret@{server.host}:{server.port}/0", name=new_box_name()) as box:
            await box.put(Event("user.created"))
            multiplexer = (await box._store.exchanges.wire())._multiplexers.shared("")
            reply = asyncio.ensure_future(multiplexer.exchange([("RESET",), ("AUTH", "guest", "wrong"), ("PING",)]))
            await asyncio.wait([reply])
            look.execute_command("ACL", "SETUSER", "guest", "reset", "on", ">secret", "~*", "&*", "+@all")
            assert (await box.put(Event("user.created"))).created


async def test_a_retired_connection_still_delivers_pending_replies(server: servers.Server):
    async with Box.open(server.url, name=new_box_name()) as box:
        await box.put(Event("user.created"))
        multiplexers = (await box._store.exchanges.wire())._multiplexers
        before = multiplexers.shared("")
        slow = asyncio.ensure_future(before.exchange([("BLPOP", "nothing", 0.3), ("ECHO", "late")]))
        await asyncio.sleep(0.05)
        before.retired = True
        await box.put(Event("user.created"))  # over another connection
        assert multiplexers.shared("") is not before
        assert await slow == [None, b"late"]


async def test_connections_of_waits_are_given_back(server: servers.Server):
    with server.client() as look:
        before = len(look.client_list())
        async with Box.open(server.url, name=new_box_name()) as box:
            await asyncio.gather(*[box.wait_for_hint(0.05) for _ in range(10)])
            await box.stats()
            await asyncio.sleep(0.05)
            connected = [each for each in look.client_list() if each["cmd"] != "client|list"]
            assert len(connected) - before <= 3  # the shared one, and two that are kept
