"""The target of the demo: a small HTTP server on this machine that sometimes fails."""

from __future__ import annotations

import asyncio
import json
from typing import Final

FAILS_EVERY: Final = 3
ANSWER_SECONDS: Final = 0.15


class OrderService:
    """Accepts orders at /orders. Until it is repaired, every third request fails, and orders with a negative amount are
    rejected."""

    def __init__(self) -> None:
        self.requests = 0
        self.arrived: set[str] = set()
        self.repaired = False
        self._server: asyncio.Server | None = None
        self.url = ""

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/orders"

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                headers = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
                body = await reader.readexactly(int(headers[b"content-length"]))
                await asyncio.sleep(ANSWER_SECONDS)
                status, text = self._answer(headers[b"ce-id"].decode(), json.loads(body))
                writer.write(f"HTTP/1.1 {status}\r\ncontent-length: {len(text)}\r\n\r\n{text}".encode())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):  # the demo has ended
            pass
        finally:
            writer.close()

    def _answer(self, event_id: str, order: dict[str, int]) -> tuple[str, str]:
        self.requests += 1
        if order["amount"] < 0 and not self.repaired:
            return "422 Unprocessable Entity", "an amount must not be negative"
        if self.requests % FAILS_EVERY == 0 and not self.repaired:
            return "500 Internal Server Error", "the database is busy"
        self.arrived.add(event_id)
        return "204 No Content", ""
