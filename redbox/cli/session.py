"""What the global options amount to: which store, which box, and how to answer."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from redbox.cli.output import Output
from redbox.errors import UnknownBox, UntrustedStore

if TYPE_CHECKING:
    from redbox import Box

T = TypeVar("T")
LOCAL_DIRECTORY: Final = "./.redbox"
LOCAL_URL: Final = f"embedded:{LOCAL_DIRECTORY}"


class Session:
    """One run of the command line."""

    def __init__(self, url: str | None, box_name: str, as_json: bool, debug: bool) -> None:
        self.box_name = box_name
        self.debug = debug
        self.output = Output(as_json)
        self._given_url = url

    @cached_property
    def url(self) -> str:
        """The store that was named, or the one that lies in the current directory; never a guess beyond that."""
        if self._given_url is not None:
            if self._given_url.startswith("memory:"):
                self.output.note(f"{self.describe(self._given_url)} lasts only as long as this command")
            return self._given_url
        if os.path.isdir(LOCAL_DIRECTORY):
            _check_local_directory()
            self.output.note(f"using {LOCAL_URL}, since neither --url nor $REDBOX_URL is set")
            return LOCAL_URL
        raise click.UsageError(
            "no store: give --url before the command or set $REDBOX_URL, e.g. redis://localhost:6379/0, or "
            f"{LOCAL_URL} for a server in this directory"
        )

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        import asyncio

        return asyncio.run(work)

    def open(self, name: str | None = None, **options: Any) -> Box:
        """A box of the store, whether it exists or not."""
        from redbox import Box

        return Box.open(self.url, name=name or self.box_name, **options)

    @asynccontextmanager
    async def existing(self) -> AsyncIterator[Box]:
        """The box, for reading: one that does not exist is an error, and is not made."""
        self.require_directory()
        async with self.open() as box:
            if not await box.exists():
                names = await box.names()
                there = f"there are: {', '.join(names)}" if names else "there is none yet; `redbox put` makes one"
                raise UnknownBox(f"there is no box {box.name!r} on {self.where}; {there}")
            yield box

    def require_directory(self) -> None:
        """An embedded server would make its directory; a command that only reads must not."""
        scheme, _, directory = self.url.partition(":")
        if scheme != "embedded":
            return
        self.open()  # refuses a URL that cannot be right
        if not os.path.isdir(directory.removeprefix("//")):
            raise UnknownBox(f"there is no directory {directory}, and so no box; `redbox put` makes both")

    @property
    def where(self) -> str:
        """The store in words, without secrets."""
        return self.describe(self.url)

    @staticmethod
    def describe(url: str) -> str:
        from redbox.store.connect import describe

        return describe(url)


def _check_local_directory() -> None:
    """What lies in the current directory is used unasked, so a link there must be of this user's making, or root's."""
    from redbox.store.embedded.private_directory import describe_user, is_trusted

    if os.path.islink(LOCAL_DIRECTORY) and not is_trusted(owner := os.lstat(LOCAL_DIRECTORY).st_uid):
        raise UntrustedStore(
            f"{LOCAL_DIRECTORY} is a symbolic link of {describe_user(owner)}; give --url {LOCAL_URL} if it is meant"
        )


pass_session = click.make_pass_decorator(Session)
