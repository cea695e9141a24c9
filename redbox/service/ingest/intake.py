"""Reads bodies of requests within limits: bytes of one body, and bytes of all bodies in the process.

The time that a client may take is a limit of its connection (redbox/service/http/connections.py).
"""

from __future__ import annotations

import asyncio
import zlib
from http import HTTPStatus
from types import TracebackType
from typing import Any, Final, Self

from litestar.exceptions import HTTPException
from litestar.types import Receive

from redbox.arguments import counted
from redbox.service.ingest.request_headers import RequestHeaders
from redbox.service.options import ServiceOptions

MAX_MEMBERS: Final = 1000  # of a gzip body
_GZIP: Final = 16 + zlib.MAX_WBITS
_SLICE: Final = 64 * 1024  # bytes that are read at once while a body is decompressed
_UNPACKED_SLICE: Final = 256 * 1024  # bytes that are written at once
#: The rest of a refused body is not read, so the connection cannot be used again.
_CLOSE: Final = {"connection": "close"}


class Intake:
    """The bodies that are being read or stored in this process."""

    def __init__(self, options: ServiceOptions) -> None:
        self.max_body = options.max_body
        self.max_bodies = max(options.max_bodies, options.max_body)
        self.batch_events = options.batch_events
        self.buffered = 0  # bytes

    def body(self, headers: RequestHeaders, receive: Receive) -> Body:
        """The body of a request. Its bytes count while the `with` block runs."""
        return Body(self, headers, receive)


class Body:
    """The body of one request."""

    def __init__(self, intake: Intake, headers: RequestHeaders, receive: Receive) -> None:
        self._intake = intake
        self._headers = headers
        self._receive = receive
        self._buffered = 0
        self._read = 0  # bytes of the body, or of its decompressed content

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._intake.buffered -= self._buffered

    async def read(self) -> bytes:
        """The whole body, decompressed. Raises HTTPException if it is too large or not complete."""
        announced = self._headers.length
        if announced is not None:
            self._check_announced(announced)
        packed = self._headers.packed
        body = await self._receive_all()
        if announced is not None and len(body) != announced:
            raise HTTPException(
                detail=f"the body has {counted(len(body), 'byte')}, and Content-Length says {announced:,}; nothing was "
                "stored",
                status_code=HTTPStatus.BAD_REQUEST,
                headers=_CLOSE,
            )
        return await self._decompressed(body) if packed else body

    async def _receive_all(self) -> bytes:
        """The body as it is sent. Nearly every body has one part only, which has arrived already."""
        parts: list[bytes] = []
        more = True
        while more:
            message: Any = await self._receive()
            if message["type"] == "http.disconnect":
                raise HTTPException(
                    detail="the connection was closed before the body was complete; nothing was stored",
                    status_code=HTTPStatus.BAD_REQUEST,
                )
            part = message["body"]
            self._take(len(part))
            parts.append(part)
            more = message["more_body"]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _check_announced(self, size: int) -> None:
        """Refuses a body before it is read. Bytes that are only announced are not counted."""
        if size > self._intake.max_body:
            raise self._too_large()
        self._check_room(size)

    def _take(self, size: int) -> None:
        """Counts bytes that were read."""
        if self._read + size > self._intake.max_body:
            raise self._too_large()
        self._check_room(size)
        self._read += size
        self._buffered += size
        self._intake.buffered += size

    def _check_room(self, size: int) -> None:
        if self._intake.buffered + size > self._intake.max_bodies:
            raise HTTPException(
                detail=f"{self._intake.buffered:,} bytes of other requests are being stored, and the limit is "
                f"{self._intake.max_bodies:,}; repeat the request later",
                status_code=HTTPStatus.SERVICE_UNAVAILABLE,
                headers=_CLOSE,
            )

    async def _decompressed(self, body: bytes) -> bytes:
        """The content of a gzip file, which may have several members. Never more than a body may have is unpacked.

        Other requests get their turn between the slices: they wait for the unpacking of one slice at most.
        """
        self._read = 0
        parts: list[bytes] = []
        unpacking = zlib.decompressobj(_GZIP)
        members = 1
        for start in range(0, len(body), _SLICE):
            left = body[start : start + _SLICE]
            while left:
                if parts:
                    await asyncio.sleep(0)
                if unpacking.eof:
                    members += 1
                    if members > MAX_MEMBERS:
                        raise _not_usable(f"it has more than {MAX_MEMBERS:,} gzip members; compress it as one")
                    unpacking = zlib.decompressobj(_GZIP)
                try:
                    part = unpacking.decompress(left, _UNPACKED_SLICE)
                except zlib.error as error:
                    raise _not_gzip(str(error)) from None
                self._take(len(part))
                parts.append(part)
                left = unpacking.unused_data if unpacking.eof else unpacking.unconsumed_tail
        if body and not unpacking.eof:
            raise _not_gzip("it is not complete")
        return b"".join(parts)

    def _too_large(self) -> HTTPException:
        return HTTPException(
            detail=f"a body may have {self._intake.max_body:,} bytes; send fewer events at once",
            status_code=HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            headers=_CLOSE,
        )


def _not_gzip(reason: str) -> HTTPException:
    return _not_usable(f"it is not gzip, as content-encoding says: {reason}")


def _not_usable(reason: str) -> HTTPException:
    return HTTPException(detail=f"the body cannot be read: {reason}", status_code=HTTPStatus.UNPROCESSABLE_ENTITY)
