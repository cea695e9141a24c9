"""Reads bodies of requests within limits: bytes of one body, bytes of all bodies in the process, and time."""

from __future__ import annotations

import asyncio
import zlib
from http import HTTPStatus
from types import TracebackType
from typing import Any, Final, Self

from litestar.exceptions import HTTPException
from litestar.types import Receive

from redbox.service.ingest.head import Head
from redbox.service.options import ServiceOptions

_GZIP: Final = 16 + zlib.MAX_WBITS
#: The rest of a refused body is not read, so the connection cannot be used again.
_CLOSE: Final = {"connection": "close"}


class Intake:
    """The bodies that are being read or stored in this process."""

    def __init__(self, options: ServiceOptions) -> None:
        self.max_body = options.max_body
        self.max_bodies = max(options.max_bodies, options.max_body)
        self.seconds = options.body_seconds
        self.batch_events = options.batch_events
        self.held = 0  # bytes

    def body(self, head: Head, receive: Receive) -> Body:
        """The body of a request. Its bytes count while the `with` block runs."""
        return Body(self, head, receive)


class Body:
    """The body of one request."""

    def __init__(self, intake: Intake, head: Head, receive: Receive) -> None:
        self._intake = intake
        self._head = head
        self._receive = receive
        self._late = False
        self._held = 0
        self._read = 0  # bytes of the body, or of its decompressed content

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._intake.held -= self._held

    async def read(self) -> bytes:
        """The whole body, decompressed. Raises HTTPException if it is too large, too slow or not complete."""
        if self._head.length is not None:
            self._check_announced(self._head.length)
        packed = self._head.packed
        body = await self._receive_all()
        return self._decompressed(body) if packed else body

    async def _receive_all(self) -> bytes:
        """The body as it is sent. Nearly every body has one part only, which has arrived already."""
        late = asyncio.get_running_loop().call_later(self._intake.seconds, self._be_late, asyncio.current_task())
        parts: list[bytes] = []
        more = True
        try:
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
        except asyncio.CancelledError:
            if self._late:
                raise self._too_slow() from None
            raise
        finally:
            late.cancel()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _be_late(self, task: asyncio.Task[Any] | None) -> None:
        assert task is not None
        self._late = True
        task.cancel()

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
        self._held += size
        self._intake.held += size

    def _check_room(self, size: int) -> None:
        if self._intake.held + size > self._intake.max_bodies:
            raise HTTPException(
                detail=f"{self._intake.held:,} bytes of other requests are being stored, and the limit is "
                f"{self._intake.max_bodies:,}; repeat the request later",
                status_code=HTTPStatus.SERVICE_UNAVAILABLE,
                headers=_CLOSE,
            )

    def _decompressed(self, body: bytes) -> bytes:
        """The content of a gzip file, which may have several members. Never more than a body may have is unpacked."""
        self._read = 0
        parts = []
        left = body
        while left:
            unpacking = zlib.decompressobj(_GZIP)
            try:
                part = unpacking.decompress(left, self._intake.max_body - self._read + 1)
            except zlib.error as error:
                raise _not_gzip(str(error)) from None
            self._take(len(part))
            if not unpacking.eof:
                raise _not_gzip("it is not complete")
            parts.append(part)
            left = unpacking.unused_data
        return b"".join(parts)

    def _too_large(self) -> HTTPException:
        return HTTPException(
            detail=f"a body may have {self._intake.max_body:,} bytes; send fewer events at once",
            status_code=HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            headers=_CLOSE,
        )

    def _too_slow(self) -> HTTPException:
        return HTTPException(
            detail=f"the body was not complete after {self._intake.seconds:g} seconds; nothing was stored",
            status_code=HTTPStatus.REQUEST_TIMEOUT,
            headers=_CLOSE,
        )


def _not_gzip(reason: str) -> HTTPException:
    return HTTPException(
        detail=f"the body is not gzip, as content-encoding says: {reason}", status_code=HTTPStatus.UNPROCESSABLE_ENTITY
    )
