"""Parses the requests of a connection, and refuses what the service does not speak.

The parser (llhttp) does not stop at the end of a request. So it gets the bytes in parts, in each of which one request
at most is complete.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from redbox.errors import MissingExtra
from redbox.service.http.pool import RequestPhase

try:
    from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ModuleNotFoundError as error:
    raise MissingExtra("the HTTP server", "metrics") from error


class ParsedConnection(HttpToolsProtocol):
    """One connection: the part that parses its requests. The rest sets `phase`."""

    phase: RequestPhase

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._coding: bytes | None = None  # the transfer coding of the request
        self._left = 0  # bytes of its body that are announced and have not arrived; negative without Content-Length

    def _end(self, status: HTTPStatus, detail: str) -> None:
        """Refuses the request, and ends the connection."""
        raise NotImplementedError

    def send_400_response(self, msg: str) -> None:
        self._end(HTTPStatus.BAD_REQUEST, msg)

    def _end_of_part(self, data: bytes, begin: int) -> int:
        """Where the next part ends: at the end of a body of known length, else within the first line of the next
        request. Only one request is complete in it, as only one of two has got beyond its first line."""
        if self.phase is RequestPhase.BODY and self._left > 0:
            return min(len(data), begin + self._left)
        if self.phase is RequestPhase.IDLE:
            begin = _end_of(_VERSION, data, begin)
        return _end_of(_VERSION, data, begin)

    def _parse(self, data: bytes) -> None:
        """Feeds the parser. It stops after the headers of a request for another protocol, and takes its body for the
        next request: a new parser, which does not see that wish, reads this request from its start."""
        while data:
            try:
                self.parser.feed_data(data)
                return
            except HttpParserUpgrade as upgrade:
                data = self._head_without_upgrade() + data[upgrade.args[0] :]
                self._new_parser()
            except HttpParserError as error:
                reason = error.__context__
                if isinstance(reason, _Unsupported):
                    self._end(reason.status, str(reason))
                else:
                    self.send_400_response(_INVALID)
                return

    def _new_parser(self) -> None:
        self.parser = HttpRequestParser(self)
        # Requests after one with `Connection: close` are not an error; they are not answered.
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)

    def _head_without_upgrade(self) -> bytes:
        version = self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)]
        lines += [b"%s: %s" % each for each in self.headers if each[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def on_message_begin(self) -> None:
        self._coding, self._left = None, 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.phase is RequestPhase.BODY:
            return  # trailers are not kept
        size = len(name)
        if size == len(_CODING) and name.lower() == _CODING:
            self._coding = value.strip().lower() if self._coding is None else self._coding + b", " + value
        elif size == len(_LENGTH) and name.lower() == _LENGTH:
            self._left = int(value)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self.phase is RequestPhase.RECEIVED:  # `_end_of_part` looks for the version of HTTP
            raise _Unsupported("the protocol is not HTTP/1.1")
        if self._coding is not None:
            if self._coding != b"chunked":
                raise _Unsupported("the only transfer coding is chunked", HTTPStatus.NOT_IMPLEMENTED)
            if self.parser.get_http_version() != "1.1":
                raise _Unsupported("HTTP/1.0 has no Transfer-Encoding; send Content-Length")
        if not self.parser.should_upgrade():
            self._begin_body()
        elif self.parser.get_method() == b"CONNECT":
            raise _Unsupported("the method CONNECT is not supported")
        # Any other request for another protocol is parsed again.

    def _begin_body(self) -> None:
        """Called after the headers of a request that is answered. Its body follows, which may be empty."""
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._left -= len(body)
        super().on_body(body)


class _Unsupported(Exception):
    """A request that the service cannot answer, though it is valid."""

    def __init__(self, detail: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> None:
        super().__init__(detail)
        self.status = status


_CODING: Final = b"transfer-encoding"
_LENGTH: Final = b"content-length"
_VERSION: Final = b" HTTP/"
_INVALID: Final = "this is not a valid HTTP request"


def _end_of(mark: bytes, data: bytes, begin: int) -> int:
    """Where the first mark from there ends, or else the data."""
    found = data.find(mark, begin)
    return len(data) if found < 0 else found + len(mark)
