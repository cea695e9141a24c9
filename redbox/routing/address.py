"""The URLs of boxes as targets: `box:NAME` on the server of the relay's box, or `box+redis://host:port/db/NAME`."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

import msgspec

from redbox import keys
from redbox.errors import InvalidURL, UsageError
from redbox.store import connect
from redbox.urls import read_url

PREFIX: Final = "box:"
REMOTE: Final = ("box+redis", "box+rediss")
_WHAT: Final = "a valid URL of a box"


class Address(msgspec.Struct, frozen=True):
    """A box by name. `store`: the URL of its server; None for the server of the relay's box."""

    name: str
    store: str | None = None

    def __repr__(self) -> str:  # the URL may hold a password
        return f"Address({self.text})"

    @property
    def text(self) -> str:
        """The address without secrets."""
        if self.store is None:
            return f"{PREFIX}{self.name}"
        where, _, options = connect.describe(self.store).partition("?")
        return f"box+{where}/{self.name}{f'?{options}' if options else ''}"


def is_box(url: str) -> bool:
    """Whether the target is a box."""
    return url.partition(":")[0].lower() in ("box", *REMOTE)


def read_address(url: str) -> Address:
    """The box that a URL names; raises InvalidURL."""
    scheme, _, rest = url.partition(":")
    scheme = scheme.lower()
    if scheme == "box":
        return Address(_name(rest))
    if scheme not in REMOTE:
        raise InvalidURL("the URL of a box is box:NAME or box+redis://host:port/db/NAME")
    parts = read_url(f"{scheme}:{rest}", _WHAT)
    database, _, name = parts.path.removeprefix("/").partition("/")
    if not database or not name:
        raise InvalidURL("the URL of a box on another server is box+redis://host:port/db/NAME")
    store = parts._replace(scheme=scheme.removeprefix("box+"), path=f"/{database}").geturl()
    connect.from_url(store)  # refuses an invalid URL
    return Address(_name(unquote(name)), store)


def _name(text: str) -> str:
    try:
        return keys.check_box_name(text)
    except UsageError as error:
        raise InvalidURL(f"box:NAME: {error}") from None
