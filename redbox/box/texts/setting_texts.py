"""Settings of a box as people type and read them: `keep_published=7d`."""

from __future__ import annotations

from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

import msgspec

from redbox.arguments import shown
from redbox.durations import parse_duration
from redbox.errors import InvalidSetting
from redbox.settings import FOREVER, Settings, check_names, to_meta

DEFAULT: Final = "default"
MEANINGS: Final = {
    "dead_head": "a dead event at the head of its line: `skip` it, or `block` the line",
    "max_pending": "maximum of PENDING events; a put beyond it is refused; 0 for no limit",
    "keep_published": "how long PUBLISHED events are kept; 0 deletes them on success",
    "keep_published_count": "how many PUBLISHED events are kept at most",
    "keep_dead": "how long DEAD events are kept",
    "keep_dead_count": "how many DEAD events are kept at most",
    "sweep": "what retention removes: `all` events, or only those that are `archived`",
    "max_rate": "maximum rate at which all relays together claim, such as 50/s or 1000/min",
    "max_burst": "how many events max_rate lets relays claim at once; by default 250 ms of max_rate",
    "max_in_flight": "maximum of events that are claimed at once, by all relays together",
}
_ENDLESS: Final = (FOREVER, "unlimited", "none")
_DURATIONS: Final = ("keep_published", "keep_dead")
_UNITS: Final = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


class SettingText(msgspec.Struct, frozen=True, kw_only=True):
    """A setting for people: `value` and `default` are texts that can be typed. `choices`: all values that it can have;
    empty if there are many."""

    name: str
    value: str
    default: str
    is_default: bool
    meaning: str
    choices: tuple[str, ...]


def parse_settings(pairs: dict[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Settings from their texts, and the names of those whose text is `default`. Raises InvalidSetting."""
    check_names(pairs)
    changes = {name: _parse(name, text.strip()) for name, text in pairs.items() if text.strip() != DEFAULT}
    to_meta(changes)
    return changes, [name for name in pairs if name not in changes]


def _parse(name: str, text: str) -> Any:
    default = getattr(Settings(), name)
    endless = default is None or name.startswith("keep_")
    if endless and text.lower() in _ENDLESS:
        return None
    if name in _DURATIONS:
        try:
            return parse_duration(text).total_seconds()
        except ValueError as error:
            raise InvalidSetting(f"{name}: {error}, or {FOREVER}") from None
    if name == "max_rate":
        return text
    if endless or isinstance(default, int):
        if not (text.isascii() and text.isdigit() and len(text) <= 18):
            kind = f"a whole number, or {_ENDLESS[1]}" if endless else "a whole number"
            raise InvalidSetting(f"{name}: must be {kind}, not {shown(text)}")
        return int(text)
    return text


def format_setting(name: str, value: Any) -> str:
    """The value as it can be typed."""
    if value is None and name == "max_burst":  # that of the rate
        return DEFAULT
    if value is None:
        return FOREVER if name in _DURATIONS else _ENDLESS[1]
    if name in _DURATIONS:
        return _format_duration(value)
    return str(value)


def _format_duration(seconds: float) -> str:
    if seconds != int(seconds) or seconds == 0:
        return f"{seconds:g}s" if seconds else "0"
    parts, left = "", int(seconds)
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        parts += f"{count}{unit}" if count else ""
    return parts


def describe_settings(settings: Settings) -> list[SettingText]:
    """All settings with what they mean."""
    defaults, kinds = Settings(), get_type_hints(Settings)
    return [
        SettingText(
            name=name,
            value=format_setting(name, getattr(settings, name)),
            default=format_setting(name, getattr(defaults, name)),
            is_default=getattr(settings, name) == getattr(defaults, name),
            meaning=MEANINGS[name],
            choices=get_args(kinds[name]) if get_origin(kinds[name]) is Literal else (),
        )
        for name in Settings.__struct_fields__
    ]


def settings_json(settings: Settings) -> dict[str, dict[str, Any]]:
    """All settings by name, as one object."""
    return {
        each.name: {
            "value": getattr(settings, each.name),
            "text": each.value,
            "default": each.default,
            "is_default": each.is_default,
            "meaning": each.meaning,
            "choices": each.choices,
        }
        for each in describe_settings(settings)
    }
