"""The global options of one command: the store, the box, and the form of the output."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from redbox.cli.printing.output import Output
from redbox.errors import UnknownBox, UntrustedStore

if TYPE_CHECKING:
    from redbox import Box

T = TypeVar("T")
LOCAL_DIRECTORY: Final = "./.redbox"
LOCAL_URL: Final = f"embedded:{LOCAL_DIRECTORY}"


class Session:
    """One run of a command."""

    def __init__(self, url: str | None, box_name: str, as_json: bool, debug: bool) -> None:
        self.box_name = box_name
        self.debug = debug
        self.output = Output(as_json)
        self._given_url = url

    @property
    def has_url(self) -> bool:
        """Whether a URL was given, or ./.redbox exists."""
        return self._given_url is not None or os.path.isdir(LOCAL_DIRECTORY)

    @cached_property
    def url(self) -> str:
        """The URL that was given, else ./.redbox if it exists; never any other store."""
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

    def use_local(self) -> None:
        """Uses ./.redbox if no store was given; it is created if it does not exist."""
        if self._given_url is None:
            os.makedirs(LOCAL_DIRECTORY, mode=0o700, exist_ok=True)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs the coroutine to its end."""
        import asyncio

        return asyncio.run(work)

    def open(self, name: str | None = None, **options: Any) -> Box:
        """A box of the store, which need not exist."""
        from redbox import Box

        return Box.open(self.url, name=name or self.box_name, **options)

    @asynccontextmanager
    async def existing(self) -> AsyncIterator[Box]:
        """The box, for reading. Raises UnknownBox if it does not exist, and never creates it."""
        self.require_directory()
        async with self.open() as box:
            if not await _exists(box):
                names = await box.names()
                hint = (
                    f"existing boxes: {', '.join(names)}" if names else "it has no boxes yet; `redbox put` creates one"
                )
                raise UnknownBox(f"there is no box {box.name!r} on {self.where}; {hint}")
            yield box

    def require_directory(self) -> None:
        """Raises UnknownBox if the directory of an embedded server is missing; a reading command must not create it."""
        scheme, _, directory = self.url.partition(":")
        if scheme != "embedded":
            return
        self.open()  # refuses an invalid URL
        if not os.path.isdir(directory.removeprefix("//")):
            raise UnknownBox(f"there is no directory {directory}, and so no box; `redbox put` creates both")

    @property
    def where(self) -> str:
        """The URL of the store without secrets."""
        return self.describe(self.url)

    @staticmethod
    def describe(url: str) -> str:
        from redbox.store.connect import describe

        return describe(url)


async def _exists(box: Box) -> bool:
    from redbox import ForeignKey

    try:
        return await box.exists()
    except ForeignKey:  # the command reports it, and may do something about it
        return True


def _check_local_directory() -> None:
    """Refuses a symbolic link of another user: ./.redbox is used without being asked for."""
    from redbox.store.embedded.private_directory import describe_user, is_trusted

    if os.path.islink(LOCAL_DIRECTORY) and not is_trusted(owner := os.lstat(LOCAL_DIRECTORY).st_uid):
        raise UntrustedStore(
            f"{LOCAL_DIRECTORY} is a symbolic link of {describe_user(owner)}; give --url {LOCAL_URL} to use it"
        )


pass_session = click.make_pass_decorator(Session)
