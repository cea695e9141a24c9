"""What may stand between a box and its server: a proxy that loses replies, and a server that only refuses."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Proxy:
    """Passes everything on, until `lose_reply_to` is called: then the server runs the command, and the connection
    breaks before the client hears of it."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._losing = (b"", 0)
        self._passing = 0
        self._cut: tuple[int, bytes] | None = None
        self._answered = asyncio.Event()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._open: set[asyncio.StreamWriter] = set()
        self._down = False
        self.lost = 0
        self.port = 0

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def connections(self) -> int:
        """How many connections of clients are open."""
        return len(self._open) // 2

    def lose_reply_to(self, command: bytes, times: int = 1, *, after: int = 0) -> None:
        """Loses the reply to the next command of this name, or to the next few; `after` this many replies."""
        self._losing = (command, times)
        self._passing = after

    def cut_after(self, size: int, answer: bytes) -> None:
        """Passes `size` more bytes of requests on, and holds the others back until a reply contains `answer`. Then it
        passes them on too, and breaks the connection at the next reply, which is lost. So a part of the requests is
        answered, and those after `size` are not, whatever the speed of the server."""
        self._cut = (size, answer)
        self._answered.clear()

    @asynccontextmanager
    async def silence(self) -> AsyncIterator[None]:
        """Holds all replies back until the block ends; connections stay open."""
        self._flowing.clear()
        yield
        self._flowing.set()

    @asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        """Breaks every connection, and new ones at once, until the block ends."""
        self._down = True
        self.close()
        yield
        self._down = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._down:
            writer.close()
            return
        upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._open |= {writer, upstream_writer}
        losing = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._requests(reader, upstream_writer, losing))
                group.create_task(self._replies(upstream_reader, writer, losing))
        except* ConnectionError:
            pass
        finally:
            writer.close()
            upstream_writer.close()
            self._open -= {writer, upstream_writer}

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, losing: asyncio.Event
    ) -> None:
        while data := await reader.read(65536):
            command, times = self._losing
            if times and command in data:
                self._losing = (command, times - 1)
                losing.set()
            if self._cut is not None:
                size, answer = self._cut
                writer.write(data[:size])
                self._cut, data = (max(0, size - len(data)), answer), data[size:]
                if data:
                    await self._answered.wait()
                    self._cut = None
                    losing.set()
            writer.write(data)
            await writer.drain()
        writer.close()

    async def _replies(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, losing: asyncio.Event) -> None:
        while data := await reader.read(65536):
            await self._flowing.wait()
            if losing.is_set():
                if not self._passing:
                    self.lost += 1
                    break
                self._passing -= 1
            writer.write(data)
            await writer.drain()
            if self._cut is not None and self._cut[1] in data:
                self._answered.set()
        writer.close()

    def close(self) -> None:
        for writer in self._open:
            writer.close()


@asynccontextmanager
async def proxy(port: int) -> AsyncIterator[Proxy]:
    """A proxy in front of a server on this port."""
    passing = Proxy(port)
    server = await asyncio.start_server(passing.serve, "127.0.0.1", 0)
    passing.port = server.sockets[0].getsockname()[1]
    try:
        yield passing
    finally:
        server.close()
        passing.close()


@asynccontextmanager
async def refusing_server(error: bytes, *, greets: bool = True) -> AsyncIterator[str]:
    """A server that greets, unless told not to, and answers every other command with one error; gives its URL."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                words = []
                for _ in range(int(line[1:])):
                    length = int((await reader.readline())[1:])
                    words.append((await reader.readexactly(length + 2))[:-2])
                greeting = {b"HELLO": b"%1\r\n+proto\r\n:3\r\n", b"CLIENT": b"+OK\r\n"}
                answer = greeting.get(words[0].upper()) if greets else None
                writer.write(answer or b"-" + error + b"\r\n")
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
    finally:
        server.close()
