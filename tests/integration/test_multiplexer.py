"""One connection for everyone: replies reach whoever asked, and nobody suffers from what happens to others."""

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
from redbox.store.wire.multiplexer import Line
from redbox.testing.plugin import new_box_name
from tests import servers

pytestmark = pytest.mark.usefixtures("redbox_runner")


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Server]:
    with servers.redis_server() as started:
        yield started


@asynccontextmanager
async def line_to(server: servers.Server, **options: Any) -> AsyncIterator[Line]:
    client = redis.asyncio.Redis(host=server.host, port=server.port, **options)
    connection = await client.connection_pool.get_connection()
    line = Line.over(connection)
    assert line is not None
    try:
        yield line
    finally:
        await client.connection_pool.release(await line.give_back())
        await client.aclose()


# --- taking over -------------------------------------------------------------------------------------------------


async def test_a_line_takes_over_a_connection_of_the_redis_py_that_is_installed(server: servers.Server):
    async with line_to(server) as line:
        assert await line.exchange([("PING",)]) == [b"PONG"]


async def test_a_unix_socket_can_be_taken_over(tmp_path: Any):
    with servers.redis_server(unixsocket=str(tmp_path / "s")):
        client = redis.asyncio.Redis(unix_socket_path=str(tmp_path / "s"))
        line = Line.over(await client.connection_pool.get_connection())
        assert line is not None
        assert await line.exchange([("PING",)]) == [b"PONG"]
        await client.connection_pool.release(await line.give_back())
        await client.aclose()


async def test_what_has_no_socket_is_left_alone():
    assert Line.over(object()) is None


async def test_a_connection_that_was_given_back_works_again(server: servers.Server):
    client = redis.asyncio.Redis(host=server.host, port=server.port, max_connections=1)
    line = Line.over(await client.connection_pool.get_connection())
    assert line is not None
    await client.connection_pool.release(await line.give_back())
    assert await client.ping()
    await client.aclose()


async def test_the_applications_client_is_as_before_when_the_box_is_closed(server: servers.Server):
    client = redis.asyncio.Redis(host=server.host, port=server.port, max_connections=2)
    async with Box.open(client=client, name=new_box_name()) as box:
        await box.put(Event("user.created"))
    assert await asyncio.gather(*[client.ping() for _ in range(2)]) == [True, True]
    await client.aclose()


async def test_a_box_needs_one_connection_however_many_put(server: servers.Server):
    with server.client() as look:
        before = len(look.client_list())
        async with Box.open(server.url, name=new_box_name()) as box:
            await asyncio.gather(*[box.put(Event("user.created")) for _ in range(200)])
            await asyncio.gather(*[box.stats() for _ in range(20)])
            assert len(look.client_list()) == before + 1


# --- who gets what -----------------------------------------------------------------------------------------------


async def test_every_exchange_gets_its_own_replies_in_its_own_order(server: servers.Server):
    async with line_to(server) as line:
        sizes = [1, 70_000, 3, 300_000, 5]
        asked = [line.exchange([("ECHO", f"{n}-{k}" + "x" * sizes[n % 5]) for k in range(3)]) for n in range(200)]
        replies = await asyncio.gather(*asked)
        assert replies == [[f"{n}-{k}{'x' * sizes[n % 5]}".encode() for k in range(3)] for n in range(200)]


async def test_an_error_reply_is_returned_as_redis_py_would_raise_it(server: servers.Server):
    async with line_to(server) as line:
        missing, pong, wrong = await line.exchange([("EVALSHA", "0" * 40, 0), ("PING",), ("NOSUCH",)])
        assert isinstance(missing, NoScriptError)
        assert pong == b"PONG"
        assert "unknown command" in str(wrong)


async def test_what_cannot_be_sent_is_refused_and_sends_nothing(server: servers.Server):
    async with line_to(server) as line:
        with pytest.raises(DataError):
            await line.exchange([("PING",), ("SET", "a", object())])
        assert await line.exchange([("PING",)]) == [b"PONG"]


async def test_messages_that_answer_nothing_are_passed_over(server: servers.Server):
    async with line_to(server, protocol=3) as line:
        await line.exchange([("CLIENT", "TRACKING", "ON"), ("SET", "watched", "1"), ("GET", "watched")])
        with server.client() as other:
            other.set("watched", "2")  # the server now tells the line so
        assert await line.exchange([("ECHO", "a")]) == [b"a"]
        assert await line.exchange([("GET", "watched")]) == [b"2"]


async def test_a_cancelled_exchange_disturbs_nobody(server: servers.Server):
    async with line_to(server) as line:
        first = asyncio.ensure_future(line.exchange([("ECHO", "first")]))
        second = asyncio.ensure_future(line.exchange([("ECHO", "second")]))
        await asyncio.sleep(0)
        first.cancel()
        assert await second == [b"second"]
        assert await line.exchange([("ECHO", "third")]) == [b"third"]


async def test_a_slow_reader_holds_up_writers_and_then_lets_them_go_on(server: servers.Server):
    async with line_to(server) as line:
        line.pause_writing()
        waiting = asyncio.ensure_future(line.exchange([("ECHO", "late")]))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        line.resume_writing()
        assert await waiting == [b"late"]


# --- trouble -----------------------------------------------------------------------------------------------------


async def test_when_the_connection_breaks_everyone_who_waits_is_told(server: servers.Server):
    async with line_to(server) as line:
        (number,) = await line.exchange([("CLIENT", "ID")])
        blocked = [asyncio.ensure_future(line.exchange([("BLPOP", "nothing", 0)])) for _ in range(3)]
        await asyncio.sleep(0.05)
        with server.client() as other:
            other.client_kill_filter(_id=number)
        for each in blocked:
            with pytest.raises(ConnectionError):
                await each
        assert line.left
        with pytest.raises(ConnectionError):
            await line.exchange([("PING",)])


async def test_a_silent_server_is_given_up_after_the_time_limit(server: servers.Server):
    async with line_to(server, socket_timeout=0.3) as line:
        await line.exchange([("PING",)])
        os.kill(server.pid, signal.SIGSTOP)
        try:
            with pytest.raises(TimeoutError, match=r"0\.3 s"):
                await line.exchange([("PING",)])
        finally:
            os.kill(server.pid, signal.SIGCONT)
        assert line.left


async def test_a_server_that_goes_on_answering_is_not_given_up(server: servers.Server):
    async with line_to(server, socket_timeout=1.0) as line:
        slow = [line.exchange([("BLPOP", "nothing", 0.4)]) for _ in range(4)]
        assert await asyncio.gather(*slow) == [[None]] * 4


async def test_after_a_failover_the_next_exchange_gets_another_line(server: servers.Server):
    async with Box.open(server.url, name=new_box_name()) as box:
        await box.put(Event("user.created"))
        wire = await box._store.wire()
        before = wire._lines.shared("")
        with server.client() as look:
            look.replicaof("127.0.0.1", 1)
            (refusal,) = await before.exchange([("SET", "a", "1")])
            assert isinstance(refusal, ReadOnlyError)
            look.replicaof("NO", "ONE")
        assert before.left
        await box.put(Event("user.created"))
        assert wire._lines.shared("") is not before


async def test_what_does_not_speak_the_protocol_is_given_up():
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
    line = Line.over(connection)
    assert line is not None
    with pytest.raises(ConnectionError, match="does not speak the Redis protocol"):
        await line.exchange([("PING",)])
    await line.give_back()
    await ended.wait()
    await asyncio.sleep(0.01)
    server.close()


async def test_waiting_for_replicas_holds_nobody_up(server: servers.Server):
    async with Box.open(server.url, name=new_box_name()) as box:
        await box.put(Event("user.created"))
        waiting = asyncio.ensure_future(box.put(Event("user.created"), durability="replicas=1"))
        await asyncio.sleep(0.1)
        await asyncio.wait_for(box.put(Event("user.created")), 1)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.wait([waiting])


async def test_a_login_that_has_ended_costs_the_line(server: servers.Server):
    with server.client() as look:
        look.execute_command("ACL", "SETUSER", "guest", "on", ">secret", "~*", "&*", "+@all")
        async with Box.open(f"redis://guest:secret@{server.host}:{server.port}/0", name=new_box_name()) as box:
            await box.put(Event("user.created"))
            line = (await box._store.wire())._lines.shared("")
            reply = asyncio.ensure_future(line.exchange([("RESET",), ("AUTH", "guest", "wrong"), ("PING",)]))
            await asyncio.wait([reply])
            look.execute_command("ACL", "SETUSER", "guest", "reset", "on", ">secret", "~*", "&*", "+@all")
            assert (await box.put(Event("user.created"))).created


async def test_a_line_that_is_left_still_answers_what_was_asked(server: servers.Server):
    async with Box.open(server.url, name=new_box_name()) as box:
        await box.put(Event("user.created"))
        lines = (await box._store.wire())._lines
        before = lines.shared("")
        slow = asyncio.ensure_future(before.exchange([("BLPOP", "nothing", 0.3), ("ECHO", "late")]))
        await asyncio.sleep(0.05)
        before.left = True
        await box.put(Event("user.created"))  # over another line
        assert lines.shared("") is not before
        assert await slow == [None, b"late"]


async def test_lines_for_waiting_are_given_back(server: servers.Server):
    with server.client() as look:
        before = len(look.client_list())
        async with Box.open(server.url, name=new_box_name()) as box:
            await asyncio.gather(*[box.wait_for_hint(0.05) for _ in range(10)])
            await box.stats()
            await asyncio.sleep(0.05)
            connected = [each for each in look.client_list() if each["cmd"] != "client|list"]
            assert len(connected) - before <= 3  # the shared one, and two that are kept
