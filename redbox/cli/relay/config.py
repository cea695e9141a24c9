"""redbox.toml: several relays in one process."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from redbox.cli.placeholders import expand, expand_url
from redbox.cli.relay.settings import FIELDS, NUMBER, TEXT, RelaySettings, SettingError
from redbox.errors import InvalidURL, StoreUnavailable, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from redbox.relay import Relay

_UNKNOWN: Final = re.compile(r"Object contains unknown field `(?P<field>[^`]*)`")
_MISSING: Final = re.compile(r"Object missing required field `(?P<field>[^`]*)`")
_AT: Final = re.compile(r" - at `\$(?P<path>[^`]*)`$")
_TABLE: Final = re.compile(r"\.relay\[(?P<number>\d+)\]\.?(?P<field>.*)")
#: The values of a field, for error messages: those of msgspec are written for programmers.
_TAKES: Final = {
    "relay": "begin each relay with [[relay]]",
    "log": '"text" or "json"',
    "metrics_port": NUMBER,
    "metrics_host": TEXT,
    **{name: field.takes for name, field in FIELDS.items()},
}
#: Fields whose placeholders are replaced later: their values may hold secrets.
_LATER: Final = ("url", "to", "options", "dead_to", "dead_options", "alerts_to", "alerts_options")

#: Where the URL of the store is given if the file has none.
DEFAULT_SOURCE: Final = StoreUnavailable.url_source


class ConfigError(UsageError):
    """The configuration file is invalid."""


class Config(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The file. `url` is the store of every relay without a `url` of its own."""

    relay: list[RelaySettings]
    url: str | None = None
    log: Literal["text", "json"] | None = None
    metrics_port: int | None = None
    metrics_host: str | None = None

    def __repr__(self) -> str:  # the fields may hold secrets
        return f"Config({self.relay!r})"


def load(path: Path) -> Config:
    """The contents of the file, with checked types; ConfigError names the invalid field."""
    data: Any = None
    try:
        with path.open("rb") as file:
            data = _expanded(tomllib.load(file))
        _check_names(data)
        config = msgspec.convert(data, Config)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    except SettingError as error:
        raise ConfigError(f"{path}: {error}") from None
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {_explain(str(error), data)}") from None
    if not config.relay:
        raise ConfigError(f"{path}: it has no relay; begin one with [[relay]]")
    if config.metrics_port is not None and not 0 <= config.metrics_port <= 65535:
        raise ConfigError(f"{path}: metrics_port: must be between 0 and 65535")
    return config


def _check_names(data: dict[str, Any]) -> None:
    """Refuses unknown fields of a relay: msgspec does that for its own classes only."""
    tables = data.get("relay")
    for number, table in enumerate(tables if isinstance(tables, list) else ()):
        unknown = [name for name in table if name not in FIELDS] if isinstance(table, dict) else []
        if unknown:
            raise msgspec.ValidationError(f"Object contains unknown field `{unknown[0]}` - at `$.relay[{number}]`")


def open_relays(path: Path, config: Config, default_url: Callable[[], str]) -> list[Relay]:
    """The relays of the file; each error names the file, the table and the field."""
    relays: list[Relay] = []
    for number, settings in enumerate(config.relay, 1):
        try:
            url = _url(settings, config) or default_url()
            relay = settings.open(url, path.parent)
            if any((relay.box.name, relay.box.where) == (other.box.name, other.box.where) for other in relays):
                raise SettingError("box", f"{relay.box.name!r} on {relay.box.where} has a relay already, above")
            if any((relay.box.name, relay.name) == (other.box.name, other.name) for other in relays):
                raise SettingError("name", f"two relays of this box have the name {relay.name!r}; give each its own")
        except UsageError as error:
            if isinstance(error, ImportError):  # a missing extra is not an error of the file
                raise
            source = ""
            if isinstance(error, InvalidURL):  # of the store: an invalid target is a SettingError
                source = f"{DEFAULT_SOURCE if settings.url is None and config.url is None else 'url'}: "
            raise ConfigError(f"{path}: relay {number} (box {settings.box}): {source}{error}") from error
        relays.append(relay)
    return relays


def url_sources(path: Path, config: Config) -> list[str]:
    """Where the URL of each relay's store was given."""
    default = DEFAULT_SOURCE if config.url is None else f"url in {path}"
    return [
        default if settings.url is None else f"url of relay {number} (box {settings.box}) in {path}"
        for number, settings in enumerate(config.relay, 1)
    ]


def _url(settings: RelaySettings, config: Config) -> str | None:
    text = config.url if settings.url is None else settings.url
    if text is None:
        return None
    try:
        return expand_url(text)
    except ValueError as error:
        raise SettingError("url", str(error)) from None


def _expanded(data: dict[str, Any]) -> dict[str, Any]:
    """The contents of the file, with placeholders replaced except in `_LATER`."""
    tables = data.get("relay")
    if isinstance(tables, list):
        data = {
            **data,
            "relay": [_expanded_table(table, f"{_describe(at, data)}: ") for at, table in enumerate(tables)],
        }
    return {**data, **_expanded_table(data, "")}


def _expanded_table(table: Any, where: str) -> Any:
    if not isinstance(table, dict):
        return table
    found = dict(table)
    for name, value in table.items():
        if isinstance(value, str) and name not in _LATER:
            try:
                found[name] = expand(value)
            except ValueError as error:
                raise SettingError(f"{where}{name}", str(error)) from None
    return found


def _explain(message: str, data: Any) -> str:
    """An error of msgspec, in the terms of the file."""
    found = _AT.search(message)
    path = found["path"] if found else ""
    problem = message[: found.start()] if found else message
    table = _TABLE.fullmatch(path)
    field = table["field"] if table else path.removeprefix(".")
    where = f"{_describe(int(table['number']), data)}: " if table else ""
    if unknown := _UNKNOWN.fullmatch(problem):
        names = ", ".join(FIELDS if table else Config.__struct_fields__)
        return f"{where}{unknown['field']}: no such field; the fields are {names}"
    if missing := _MISSING.fullmatch(problem):
        how = "give the target" if table else _TAKES[missing["field"]]
        return f"{where}{missing['field']}: missing; {how}"
    takes = _TAKES.get(field.partition("[")[0])
    field = field.replace("[...]", "")
    return f"{where}{field}: {takes or problem[:1].lower() + problem[1:]}"


def _describe(index: int, data: Any) -> str:
    table = data["relay"][index] if isinstance(data, dict) else {}
    box = table.get("box") if isinstance(table, dict) else None
    return f"relay {index + 1}" + (f" (box {box})" if isinstance(box, str) else "")
