"""redbox.toml: several relays in one process."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from redbox.cli.options.placeholders import expand, expand_url
from redbox.cli.relay.lines import Lines
from redbox.cli.relay.settings import FIELDS, NUMBER, TEXT, RelaySettings, SettingError
from redbox.errors import InvalidURL, StoreUnavailable, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from redbox import Box
    from redbox.relay import Relay

_UNKNOWN: Final = re.compile(r"Object contains unknown field `(?P<field>[^`]*)`")
_MISSING: Final = re.compile(r"Object missing required field `(?P<field>[^`]*)`")
_AT: Final = re.compile(r" - at `\$(?P<path>[^`]*)`$")
_TABLE: Final = re.compile(r"\.relay\[(?P<number>\d+)\]\.?(?P<field>.*)")
_STEP: Final = re.compile(r"([^.\[\]]+)|\[(\d+|\.\.\.)\]")
#: The values of a field, for error messages: those of msgspec are written for programmers.
_TAKES: Final = {
    "relay": "begin each relay with [[relay]]",
    "log": '"text" or "json"',
    "metrics_port": NUMBER,
    "metrics_host": TEXT,
    "other_boxes": 'a list of names of boxes: other_boxes = ["audit"]',
    **{name: field.takes for name, field in FIELDS.items()},
}
#: Fields whose placeholders are replaced later: their values may hold secrets.
_LATER: Final = (
    "url", "to", "options", "routes", "default", "dead_to", "dead_options", "alerts_to", "alerts_options",
)  # fmt: skip

#: Where the URL of the store is given if the file has none.
DEFAULT_SOURCE: Final = StoreUnavailable.url_source

At = tuple[str | int, ...]


class ConfigError(UsageError):
    """The configuration file is invalid."""

    @classmethod
    def at(cls, path: Path, at: At, message: str) -> ConfigError:
        """An error with the line of a table or a field, if it is known."""
        try:
            line = Lines(path.read_text(encoding="utf-8")).find(at)
        except (OSError, UnicodeDecodeError):
            line = None
        return cls(f"{path}: {message}" if line is None else f"{path}:{line}: {message}")


class Config(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The file. `url` is the store of every relay without a `url` of its own. `other_boxes`: boxes without a relay in
    the file, which something else drains."""

    relay: list[RelaySettings]
    url: str | None = None
    log: Literal["text", "json"] | None = None
    metrics_port: int | None = None
    metrics_host: str | None = None
    other_boxes: list[str] = []

    def __repr__(self) -> str:  # the fields may hold secrets
        return f"Config({self.relay!r})"


def load(path: Path) -> Config:
    """The contents of the file, with checked types; ConfigError names the invalid field."""
    data: Any = None
    try:
        with path.open("rb") as file:
            data = _expanded(path, tomllib.load(file))
        _check_names(data)
        config = msgspec.convert(data, Config)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    except msgspec.ValidationError as error:
        raise ConfigError.at(path, *_explain(str(error), data)) from None
    if not config.relay:
        raise ConfigError.at(path, ("relay",), "it has no relay; begin one with [[relay]]")
    if config.metrics_port is not None and not 0 <= config.metrics_port <= 65535:
        raise ConfigError.at(path, ("metrics_port",), "metrics_port: must be between 0 and 65535")
    for number, settings in enumerate(config.relay):
        try:
            settings.check_target()
        except SettingError as error:
            raise _in_table(path, number, settings, error) from None
    return config


def _check_names(data: dict[str, Any]) -> None:
    """Refuses unknown fields of a relay and its routes: msgspec does that for its own classes only."""
    for number, table in enumerate(_tables(data.get("relay"))):
        _check_fields(table, FIELDS, f"$.relay[{number}]")
        for at, route in enumerate(_tables(table.get("routes"))):
            _check_fields(route, ("match", "to"), f"$.relay[{number}].routes[{at}]")


def _tables(found: Any) -> list[dict[str, Any]]:
    """The tables of an array, with an empty one for each that is no table; msgspec refuses those."""
    return [each if isinstance(each, dict) else {} for each in found] if isinstance(found, list) else []


def _check_fields(table: dict[str, Any], known: Collection[str], where: str) -> None:
    for name in table:
        if name not in known:
            raise msgspec.ValidationError(f"Object contains unknown field `{name}` - at `{where}`")


def open_relays(
    path: Path, config: Config, default_url: Callable[[], str], lenders: dict[str, Box] | None = None
) -> list[Relay]:
    """The relays of the file; each error names the file, the line, the table and the field.

    The boxes of one store share the connections of its first one, which is added to `lenders` by the URL of the store.
    """
    from redbox.cli.relay.graph import check_graph

    relays: list[Relay] = []
    lenders = {} if lenders is None else lenders
    for number, settings in enumerate(config.relay):
        try:
            url = store_url(settings, config) or default_url()
            relay = settings.open(url, path.parent, lenders)
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
            raise _in_table(path, number, settings, error, source) from error
        relays.append(relay)
    check_graph(path, config, relays)
    return relays


def _in_table(path: Path, number: int, settings: RelaySettings, error: UsageError, source: str = "") -> ConfigError:
    """An error of the settings of one relay."""
    at: At = ("relay", number)
    if isinstance(error, SettingError):
        at = (*at, error.setting, *error.within)
        if error.setting == "url" and settings.url is None:
            at = ("url",)
    return ConfigError.at(path, at, f"relay {number + 1} (box {settings.box}): {source}{error}")


def url_sources(path: Path, config: Config) -> list[str]:
    """Where the URL of each relay's store was given."""
    default = DEFAULT_SOURCE if config.url is None else f"url in {path}"
    return [
        default if settings.url is None else f"url of relay {number} (box {settings.box}) in {path}"
        for number, settings in enumerate(config.relay, 1)
    ]


def store_url(settings: RelaySettings | None, config: Config) -> str | None:
    """The URL of the store of a relay, or of the file; None if the file has none."""
    text = config.url if settings is None or settings.url is None else settings.url
    if text is None:
        return None
    try:
        return expand_url(text)
    except ValueError as error:
        raise SettingError("url", str(error)) from None


def _expanded(path: Path, data: dict[str, Any]) -> dict[str, Any]:
    """The contents of the file, with placeholders replaced except in `_LATER`."""
    tables = data.get("relay")
    if isinstance(tables, list):
        relays = [_expanded_table(path, table, _describe(at, data), ("relay", at)) for at, table in enumerate(tables)]
        data = {**data, "relay": relays}
    return {**data, **_expanded_table(path, data, "", ())}


def _expanded_table(path: Path, table: Any, where: str, at: At) -> Any:
    if not isinstance(table, dict):
        return table
    found = dict(table)
    for name, value in table.items():
        if isinstance(value, str) and name not in _LATER:
            try:
                found[name] = expand(value)
            except ValueError as error:
                text = f"{where}: {name}" if where else name
                raise ConfigError.at(path, (*at, name), f"{text}: {error}") from None
    return found


def _explain(message: str, data: Any) -> tuple[At, str]:
    """An error of msgspec, in the terms of the file: where it is, and what."""
    found = _AT.search(message)
    path = found["path"] if found else ""
    problem = message[: found.start()] if found else message
    table = _TABLE.fullmatch(path)
    field = table["field"] if table else path.removeprefix(".")
    where = f"{_describe(int(table['number']), data)}: " if table else ""
    at: At = tuple(int(index) if index.isdigit() else name for name, index in _STEP.findall(path) if index != "...")
    if unknown := _UNKNOWN.fullmatch(problem):
        name, names = unknown["field"], ", ".join(FIELDS if table else Config.__struct_fields__)
        if field:  # of a route
            return (*at, name), f"{where}{field}: {name}: no such field; a route has match and to"
        return (*at, name), f"{where}{name}: no such field; the fields are {names}"
    if missing := _MISSING.fullmatch(problem):
        how = _TAKES.get(missing["field"], "give it") if not table else _TAKES[field.partition("[")[0]]
        return at, f"{where}{field + ': ' if field else ''}{missing['field']}: missing; {how}"
    takes = _TAKES.get(field.partition("[")[0])
    field = field.replace("[...]", "")
    return at, f"{where}{field}: {takes or problem[:1].lower() + problem[1:]}"


def _describe(index: int, data: Any) -> str:
    table = data["relay"][index] if isinstance(data, dict) else {}
    box = table.get("box") if isinstance(table, dict) else None
    return f"relay {index + 1}" + (f" (box {box})" if isinstance(box, str) else "")
