"""A server that speaks just enough of NATS to say what a real one does not say on demand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

#: Called with the number of the message, from 1, and its reply subject: what the server sends, or None to hang up.
Script = Callable[[int, str], bytes | None]


@asynccontextmanager
async def fake_nats(script: Script, *, greeting: bytes | None = None, **info: object) -> AsyncIterator[str]:
    """Gives the URL of a server. `greeting` is its answer to the first PING."""
    writers = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        found = {"server_id": "x", "version": "2.9.10", "headers": True, "max_payload": 2**20, "jetstream": True} | info
        writer.write(b"INFO " + json.dumps(found).encode() + b"\r\n")
        count = 0
        try:
            while line := await reader.readline():
                words = line.split()
                if words[0] == b"PING":
                    writer.write(greeting or b"PONG\r\n")
                elif words[0] == b"HPUB":
                    await reader.readexactly(int(words[-1]) + 2)
                    count += 1
                    reply = script(count, words[2].decode())
                    if reply is None:
                        break
                    writer.write(reply)
        except ConnectionError:
            pass
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in writers:
            writer.close()


def reply(subject: str, data: bytes) -> bytes:
    """A message to the inbox of the client, whose subscription is its first."""
    return b"MSG %s 1 %d\r\n%s\r\n" % (subject.encode(), len(data), data)


def ack(subject: str, seq: int = 1) -> bytes:
    return reply(subject, b'{"stream":"S","seq":%d}' % seq)
