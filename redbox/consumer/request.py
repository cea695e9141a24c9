"""The headers of a request, whatever the framework passes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from redbox.arguments import invalid, shown
from redbox.errors import InvalidDelivery

#: A mapping of names to values, or pairs of them; as text or bytes. Also the environment of WSGI: Django's META.
Headers = Mapping[Any, Any] | Iterable[tuple[Any, Any]]

_from_wsgi = re.compile("HTTP_([A-Z0-9_]+)").fullmatch
_WSGI: Final = {"CONTENT_TYPE": "content-type", "CONTENT_LENGTH": "content-length"}


class RequestHeaders:
    """The headers of one request by their lowercase names."""

    def __init__(self, headers: Headers) -> None:
        self._values: dict[str, str] = {}
        self._repeated: set[str] = set()
        for key, given in _pairs(headers):
            name = _name(key)
            value = given.decode("latin-1") if isinstance(given, bytes) else given
            if not isinstance(value, str):
                continue  # the environment of WSGI holds other objects too
            if name in self._values:
                self._repeated.add(name)
            self._values[name] = value.strip(" \t")

    def get(self, name: str) -> str | None:
        """The value of a header; None without it. Raises InvalidDelivery if there are several."""
        if name in self._repeated:
            raise InvalidDelivery(f"the header {name} is given more than once")
        return self._values.get(name)

    def need(self, name: str) -> str:
        """The value of a header. Raises InvalidDelivery without it."""
        value = self.get(name)
        if not value:
            raise InvalidDelivery(f"the header {name} is missing")
        return value

    def number(self, name: str) -> int | None:
        """The value of a header that is a whole number; None without it."""
        value = self.get(name)
        if value is None:
            return None
        if not re.fullmatch("[0-9]{1,18}", value):
            raise InvalidDelivery(f"the header {name} must be a whole number, not {shown(value)}")
        return int(value)

    def text(self, name: str) -> str | None:
        """The value of a header that redbox sends as UTF-8; frameworks often decode it as Latin-1."""
        value = self.get(name)
        if value is None:
            return None
        try:
            return value.encode("latin-1").decode()
        except UnicodeError:
            return value


def _pairs(headers: Headers) -> Iterable[tuple[Any, Any]]:
    items = getattr(headers, "items", None)
    try:
        found = [*(items() if callable(items) else headers)]
        return [(name, value) for name, value in found]
    except (TypeError, ValueError):
        raise invalid("headers", "must be a mapping, or a list of pairs of name and value") from None


def _name(key: Any) -> str:
    if isinstance(key, bytes):
        key = key.decode("latin-1")
    if not isinstance(key, str):
        raise invalid("headers", f"must have names that are text or bytes, not {shown(key)}")
    wsgi = _from_wsgi(key)
    return wsgi[1].replace("_", "-").lower() if wsgi else _WSGI.get(key) or key.lower()
