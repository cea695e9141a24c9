"""`stdout:` writes one line of JSON per event, acknowledged once it is written to the standard output."""

from __future__ import annotations

import asyncio
import io
import os
import select
import sys
import threading
from collections.abc import Sequence
from typing import Any, ClassVar

import anyio.to_thread
import msgspec

from redbox.errors import Unavailable
from redbox.events import Claim
from redbox.payloads import is_json
from redbox.publishers.base import Publisher, passed_on
from redbox.publishers.options import check_bare_scheme
from redbox.terminals import escape_json

_encode = msgspec.json.Encoder().encode


class StdoutPublisher(Publisher):
    """Writes whole lines of JSON. It writes from a thread, since the reader may be slow."""

    many: ClassVar[int] = 500
    calls_at_once = 1
    target = "stdout:"

    def __init__(self, url: str = "stdout:") -> None:
        check_bare_scheme(url, "stdout")
        self._turn = asyncio.Lock()
        self._writing = threading.Lock()  # held by a thread whose caller may have been cancelled
        self._incomplete_line = False

    async def open(self, box: str) -> None:  # noqa: ARG002  # there is one standard output
        self._turn = asyncio.Lock()

    async def publish(self, claim: Claim) -> None:
        await self._write(json_line(claim))

    async def publish_many(self, claims: Sequence[Claim]) -> Sequence[BaseException | None]:
        try:
            await self._write(b"".join([json_line(claim) for claim in claims]))
        except Unavailable as error:
            return [error] * len(claims)
        return [None] * len(claims)

    async def _write(self, lines: bytes) -> None:
        async with self._turn:
            await anyio.to_thread.run_sync(self._write_in_thread, lines, abandon_on_cancel=True)

    def _write_in_thread(self, lines: bytes) -> None:
        if not self._writing.acquire(blocking=False):
            raise Unavailable("the standard output is blocked: an earlier write is still waiting")
        try:
            self._write_whole(lines)
        except (OSError, ValueError) as error:  # ValueError: Python's own stream is closed
            raise Unavailable(f"cannot write to the standard output: {error}") from error
        finally:
            self._writing.release()

    def _write_whole(self, lines: bytes) -> None:
        try:
            descriptor = sys.stdout.fileno()
        except (AttributeError, io.UnsupportedOperation):  # in a notebook, or in a test that captures output
            sys.stdout.write(lines.decode())
            sys.stdout.flush()
            return
        sys.stdout.flush()
        if os.isatty(descriptor):
            lines = escape_json(lines.decode()).encode()
        # Without Python's buffer: data of a failed write must not be written later.
        rest = memoryview(b"\n" + lines if self._incomplete_line else lines)
        while rest:
            try:
                written = os.write(descriptor, rest)
            except BlockingIOError:  # another process set the shared terminal to non-blocking
                select.select([], [descriptor], [])
                continue
            rest = rest[written:]
            self._incomplete_line = bool(rest)


def json_line(claim: Claim) -> bytes:
    """Returns an event as one line of JSON. If `payload_base64` is given, it is the exact payload, and `payload` is a
    readable form."""
    event = claim.event
    payload, content_type = event.encode()
    fields: dict[str, Any] = {
        "event_id": claim.event_id,
        "event_type": event.event_type,
        "created_at": claim.created_at,
        "content_type": content_type,
        "partition_key": event.partition_key,
        "headers": passed_on(claim),
        "claim": claim.number,
        "attempt": claim.attempts,
    }
    value = _readable(payload, content_type)
    if value is not None:
        fields["payload"] = value
    if value is None or (isinstance(value, msgspec.Raw) and bytes(value) != payload):
        fields["payload_base64"] = payload  # msgspec encodes bytes as base64
    return _encode(fields) + b"\n"


def _readable(payload: bytes, content_type: str) -> Any:
    """Returns the payload in readable form, without line breaks; None if it has none."""
    try:
        if is_json(content_type):
            msgspec.json.decode(payload)
            return msgspec.Raw(payload.replace(b"\n", b" ").replace(b"\r", b" "))  # JSON has them only between tokens
        if content_type.startswith("text/"):
            return payload.decode()
    except (ValueError, RecursionError):
        pass
    return None
