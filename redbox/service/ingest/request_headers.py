"""The headers of a request: what they say about its body."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Final

from litestar import Request
from litestar.datastructures import State
from litestar.exceptions import HTTPException

from redbox.arguments import shown
from redbox.box.texts.event_json import usable_id
from redbox.errors import InvalidEvent
from redbox.service.ingest.cloudevents import BATCHED, PREFIX

_UTF8: Final = frozenset({"utf-8", "utf8", "us-ascii"})
_CLOUD_EVENT: Final = PREFIX.encode()


class RequestHeaders:
    """The headers of a request. They are read as they came: Litestar's mapping takes longer than the decoding of an
    event."""

    def __init__(self, request: Request[Any, Any, State]) -> None:
        given_headers: Any = request.scope["headers"]
        self._headers: dict[bytes, bytes] = dict(given_headers)
        headers = self._headers
        if len(headers) != len(given_headers):
            _refuse_repeated(given_headers)
        self.is_cloud_event = any(name.startswith(_CLOUD_EVENT) for name in headers)
        given = headers.get(b"content-type", b"").decode("latin-1")
        self.media_type = given if given in _COMMON else self._media_type(given)

    @property
    def length(self) -> int | None:
        """The announced length of the body, in bytes."""
        given = self._headers.get(b"content-length")
        return None if given is None else int(given)

    @property
    def packed(self) -> bool:
        """Whether the body is compressed with gzip. Refuses any other encoding."""
        given = self._headers.get(b"content-encoding", b"identity").strip().lower()
        if given not in (b"identity", b"gzip"):
            raise HTTPException(
                detail=f"content-encoding {shown(given.decode('latin-1'))} is not supported; send the body as it is, "
                "or with gzip",
                status_code=HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                headers={"accept-encoding": "gzip", "connection": "close"},
            )
        return given == b"gzip"

    @property
    def is_batch(self) -> bool:
        """Whether the body is a batch, wherever it is posted to."""
        return self.media_type == BATCHED

    @property
    def idempotency_key(self) -> str | None:
        """The event_id that the header asks for. The quotes of a structured header are not part of it."""
        given = self._headers.get(b"idempotency-key")
        if given is None:
            return None
        key = given.decode("latin-1").strip()
        if len(key) > 1 and key[0] == key[-1] == '"':
            key = key[1:-1]
        if not key:
            raise InvalidEvent("Idempotency-Key", "is empty; leave it out, or give a value that is unique to the event")
        return usable_id(key)

    def texts(self) -> dict[str, str]:
        """All headers as text."""
        return {name.decode("latin-1"): value.decode("latin-1") for name, value in self._headers.items()}

    def _media_type(self, given: str) -> str:
        """The media type without its parameters. Refuses a charset other than UTF-8."""
        kind, *parameters = given.lower().split(";")
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip() == "charset" and value.strip(' "') not in _UTF8 and not self.is_cloud_event:
                raise unsupported(f"charset {shown(value.strip())}", "UTF-8")
        return kind.strip()


def _refuse_repeated(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Refuses a repeated header that says something about the event or its body. Others may be repeated."""
    seen: set[bytes] = set()
    for name, _ in headers:
        if name in seen and (name in _SINGLE or name.startswith(_CLOUD_EVENT)):
            raise InvalidEvent(name.decode("latin-1"), "is given more than once")
        seen.add(name)


_SINGLE: Final = frozenset({b"content-type", b"content-encoding", b"content-length", b"idempotency-key"})
_COMMON: Final = frozenset({"application/json", "application/x-www-form-urlencoded", ""})


def unsupported(given: str, supported: str) -> HTTPException:
    return HTTPException(
        detail=f"{given} is not supported here; send {supported}", status_code=HTTPStatus.UNSUPPORTED_MEDIA_TYPE
    )
