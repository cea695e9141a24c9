"""An HTTP server for tests: records requests and sends the given replies, valid or broken."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus

WAIT_SECONDS = 20.0


@dataclass
class Request:
    """One request as it arrived."""

    method: str
    path: str
    headers: list[tuple[bytes, bytes]]
    body: bytes
    raw_head: bytes

    def header(self, name: str) -> str | None:
        values = self.all(name)
        return values[0] if values else None

    def all(self, name: str) -> list[str]:
        return [value.decode() for key, value in self.headers if key.decode().lower() == name.lower()]


@dataclass
class Reply:
    """A reply to send. `gate` or `delay` holds back the whole reply, `hold` only its body. `silent` never replies,
    `close` hangs up instead, and `reset` resets the connection. `cut` hangs up after this many bytes of the body,
    `endless` repeats the body for ever, and `raw` is sent unchanged."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    phrase: str | None = None
    delay: float = 0.0
    gate: asyncio.Event | None = None
    hold: asyncio.Event | None = None
    silent: bool = False
    close: bool = False
    reset: bool = False
    cut: int | None = None
    endless: bool = False
    raw: bytes | None = None

    def head(self) -> bytes:
        phrase = self.phrase
        if phrase is None:
            phrase = HTTPStatus(self.status).phrase if self.status in list(HTTPStatus) else ""
        lines = [f"HTTP/1.1 {self.status} {phrase}"]
        if not self.endless and not any(name.lower() == "content-length" for name in self.headers):
            lines.append(f"content-length: {len(self.body)}")
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        return "\r\n".join(lines).encode() + b"\r\n\r\n"


class Target:
    """A running server. It sends `replies` first, then `reply` to every request: a Reply, or a function of the request.
    `most` is the number of requests per connection; it hangs up on the next one without reading it."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.replies: deque[Reply] = deque()
        self.reply: Reply | Callable[[Request], Reply] = Reply()
        self.most: int | None = None
        self.connections = 0
        self.open: set[asyncio.StreamWriter] = set()
        self.sent = 0
        self.port = 0
        self.scheme = "http"
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Condition()

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/hook"

    async def received(self, count: int) -> list[Request]:
        """Waits until `count` requests have arrived."""
        await self._until(lambda: len(self.requests) >= count)
        return self.requests

    async def hung_up(self, but: int = 0) -> None:
        """Waits until at most `but` connections are open."""
        await self._until(lambda: len(self.open) <= but)

    async def end_idle(self) -> None:
        """Closes its side of every connection, and waits until the client has closed them too."""
        for writer in self.open:
            writer.write_eof()
        await self.hung_up()

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_SECONDS), self._changed:
            await self._changed.wait_for(condition)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open.add(writer)
        try:
            with suppress(OSError, EOFError, asyncio.IncompleteReadError):
                answered = 0
                while await self._one(reader, writer):
                    answered += 1
                    if answered == self.most:
                        await reader.read(1)
                        break
        finally:
            writer.close()
            self.open.discard(writer)
            with suppress(asyncio.CancelledError):
                await self._notify()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head[:-4].split(b"\r\n")
        method, path, _ = first.decode().split(" ")
        headers = [(name, value.strip(b" ")) for name, _, value in (line.partition(b":") for line in lines)]
        length = next((int(value) for name, value in headers if name.lower() == b"content-length"), 0)
        request = Request(method, path, headers, await reader.readexactly(length), head)
        self.requests.append(request)
        await self._notify()
        reply = self.replies.popleft() if self.replies else self.reply
        return await self._answer(reply(request) if callable(reply) else reply, reader, writer)

    async def _answer(self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Sends a reply. Returns whether the connection can be used again."""
        if reply.silent:
            await reader.read()
            return False
        if reply.reset:
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        if reply.close or reply.reset:
            return False
        if reply.delay:
            await asyncio.sleep(reply.delay)
        if reply.gate is not None:
            await reply.gate.wait()
        if reply.raw is not None:
            writer.write(reply.raw)
            await writer.drain()
            return False
        writer.write(reply.head())
        if reply.cut is not None:
            writer.write(reply.body[: reply.cut])
            await writer.drain()
            return False
        if reply.hold is not None:
            await writer.drain()
            await reply.hold.wait()
        writer.write(reply.body)
        await writer.drain()
        while reply.endless:
            writer.write(reply.body)
            await writer.drain()
            self.sent += len(reply.body)
        return True

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def http_target(tls: ssl.SSLContext | None = None) -> AsyncIterator[Target]:
    """A target on a free port of the loopback interface."""
    target = Target()
    server = await asyncio.start_server(target.accept, "127.0.0.1", 0, ssl=tls, limit=2**20)
    target.port = server.sockets[0].getsockname()[1]
    target.scheme = "https" if tls else "http"
    try:
        yield target
    finally:
        server.close()
        await target.close()
