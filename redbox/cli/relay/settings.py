"""One relay as it was asked for, on the command line or in redbox.toml, and the `Relay` it becomes. Nothing is
connected here; whatever cannot be right is refused, with the name of the setting."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from redbox.cli.placeholders import expand_options, expand_url
from redbox.cli.relay.retry_option import parse_attempts, parse_limit, parse_retry
from redbox.durations import format_duration, parse_duration
from redbox.errors import MissingExtra, UsageError

if TYPE_CHECKING:
    from redbox.publishers.base import Publisher
    from redbox.relay import Relay

Options = dict[str, str | int | float | bool]

#: Setting → how its text is read. What is not here goes to the relay as it is.
_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "attempts": parse_attempts,
    "max_age": parse_duration,
    "lease": parse_duration,
    "time_limit": parse_limit,
    "grace": parse_duration,
}
_AS_THEY_ARE: Final = ("concurrency", "batch", "on_success", "on_dead")


class SettingError(UsageError):
    """A setting that is wrong."""

    def __init__(self, setting: str, problem: str) -> None:
        super().__init__(f"{setting}: {problem}")
        self.setting = setting
        self.problem = problem


class RelaySettings(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The options of `redbox relay`, and the fields of a [[relay]] table; None where the default is meant."""

    to: str
    box: str = "default"
    url: str | None = None
    options: Options = {}
    name: str | None = None
    retry: str | None = None
    attempts: int | str | None = None
    max_age: float | str | None = None
    lease: float | str | None = None
    time_limit: float | str | None = None
    grace: float | str | None = None
    concurrency: int | None = None
    batch: int | None = None
    on_success: Literal["keep", "delete"] | None = None
    on_dead: Literal["keep", "drop"] | None = None
    dead_to: str | None = None
    dead_options: Options = {}
    breaker: bool = True

    def __repr__(self) -> str:  # the fields may hold secrets
        return f"RelaySettings({self.box!r})"

    def open(self, url: str, directory: Path) -> Relay:
        """The relay, with a box of its own on `url`; `directory` is where `file:` paths begin."""
        from redbox import Box, Relay

        chosen: dict[str, Any] = {
            name: read(getattr(self, name)) for name, read in self._readers() if getattr(self, name) is not None
        }
        chosen |= {name: getattr(self, name) for name in _AS_THEY_ARE if getattr(self, name) is not None}
        publisher = self._publisher("to", "options", directory)
        if self.dead_to is not None:
            chosen["dead_to"] = self._publisher("dead_to", "dead_options", directory)
        elif self.dead_options:
            raise SettingError("dead_options", "there is no dead_to that they could be for")
        if self.retry is not None:
            chosen["backoff"] = _read("retry", parse_retry)(self.retry)
        if not self.breaker:
            chosen["breaker"] = None
        return Relay(Box.open(url, name=self.box), publisher, name=self.name, **chosen)

    def _readers(self) -> list[tuple[str, Callable[[Any], Any]]]:
        return [(name, _read(name, read)) for name, read in _READERS.items()]

    def _publisher(self, target: str, options: str, directory: Path) -> Publisher:
        from redbox.publishers.registry import open_publisher, secret_options

        url = _read(target, expand_url)(getattr(self, target))
        try:
            secrets = secret_options(url)
            given = _read(options, lambda value: expand_options(value, secrets, directory))(getattr(self, options))
        except (SettingError, MissingExtra):
            raise
        except UsageError as error:
            raise SettingError(target, str(error)) from error
        try:
            return open_publisher(url, **given)
        except MissingExtra:
            raise
        except UsageError as error:
            words = str(error)
            is_option = words.partition(" ")[0] in given or "has no option" in words
            raise SettingError(options if is_option else target, words) from error

    # --- in words ------------------------------------------------------------------------------------------------

    @property
    def writes_stdout(self) -> bool:
        targets = [expand_url(target) for target in (self.to, self.dead_to) if target is not None]
        return any(target.lower().startswith("stdout:") for target in targets)

    def policy(self) -> str:
        """What happens to an event that fails, and how much is done at once."""
        from redbox.relay import policy as defaults
        from redbox.settings import LEASE

        attempts = defaults.ATTEMPTS if self.attempts is None else parse_attempts(self.attempts)
        parts = [
            f"retry {self.retry or 'exp:1s..5m'}",
            "any number of attempts" if attempts is None else f"{attempts} attempt{'s' if attempts > 1 else ''}",
            *([] if self.max_age is None else [f"not after {format_duration(parse_duration(self.max_age))}"]),
            f"lease {format_duration(parse_duration(LEASE if self.lease is None else self.lease))}",
            f"{self.concurrency or defaults.CONCURRENCY} at once",
            *(["published events are deleted"] if self.on_success == "delete" else []),
            *(["dead events are dropped"] if self.on_dead == "drop" else []),
            *([] if self.breaker else ["no breaker"]),
        ]
        return ", ".join(parts)


def _read(setting: str, read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The reader, with the name of the setting in its errors."""

    def checked(value: Any) -> Any:
        try:
            return read(value)
        except ValueError as error:
            raise SettingError(setting, str(error)) from None

    return checked
