"""Settings of a box, as its meta hash stores them, and the defaults of all limits."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final, Literal

import msgspec

from redbox.arguments import shown
from redbox.errors import InvalidSetting, NewerLayout, StoreError
from redbox.rates import EXPECTED, parse_rate

LAYOUT: Final = 1
_LAYOUT: Final = re.compile("[0-9]{1,9}")
MAX_PAYLOAD: Final = 1024 * 1024
BATCH_COUNT: Final = 1000
BATCH_BYTES: Final = 8 * 1024 * 1024
STEP_BYTES: Final = 1024 * 1024  # sent or returned by one script call, where a call may be split
PAGE_LIMIT: Final = 500
PAGE_LOOK: Final = 1000  # events that one step of a listing reads: a few milliseconds of the server's time
SWEEP_COUNT: Final = 250  # events of one step of a sweep: a few milliseconds of the server's time
LEASE: Final = 30.0
FORGET_RELAY: Final = timedelta(days=1)
UNREADABLE_DELAY: Final = 60.0
KEEP_PUBLISHED: Final = timedelta(hours=24)
KEEP_PUBLISHED_COUNT: Final = 100_000
LARGEST: Final = 10**9  # seconds or events

DeadHead = Literal["skip", "block"]
Sweep = Literal["all", "archived"]


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a box, stored in it and shared by all its users.

    `dead_head`: whether a line skips a DEAD event at its head ("skip") or stops there ("block").
    `max_pending`: the most PENDING events; a put beyond it raises BoxFull; 0 for no limit.
    `keep_published`, `keep_dead`: how long events in these states are kept, in seconds; None for ever.
    keep_published=0 deletes on success. `keep_published_count`, `keep_dead_count`: how many are kept at most; None for
    no limit. `sweep`: whether a sweep removes all events past their retention ("all"), or only those that the pipeline
    has archived ("archived").
    `max_rate`: the most events that all relays together claim in a time, such as "50/s" or "1000/min"; `max_burst`: how
    many of them at once, by default what a quarter of a second brings. `max_in_flight`: the most events
    that are claimed at once. None for no limit.
    """

    dead_head: DeadHead = "skip"
    max_pending: int = 0
    keep_published: float | None = KEEP_PUBLISHED.total_seconds()
    keep_published_count: int | None = KEEP_PUBLISHED_COUNT
    keep_dead: float | None = None
    keep_dead_count: int | None = None
    sweep: Sweep = "all"
    max_rate: str | None = None
    max_burst: int | None = None
    max_in_flight: int | None = None

    @classmethod
    def from_meta(cls, meta: dict[str, str], needed: Iterable[str] | None = None) -> Settings:
        """Reads the settings from a meta hash; raises StoreError if one of those that are `needed` (None: all) is
        unreadable. Others that are get their defaults."""
        settings, unreadable = cls.readable(meta)
        wrong = [name for name in unreadable if needed is None or name in needed]
        if wrong:
            name = wrong[0]
            raise StoreError(
                f"the setting {name} of this box is unreadable: {shown(meta[name])}; set it again with "
                f"box.operate.configure({name}=...)"
            )
        return settings

    @classmethod
    def readable(cls, meta: dict[str, str]) -> tuple[Settings, list[str]]:
        """Reads the settings from a meta hash. Unreadable ones get their defaults, and their names are returned."""
        layout = meta.get("layout", str(LAYOUT))
        if not _LAYOUT.fullmatch(layout) or int(layout) > LAYOUT:
            raise NewerLayout
        known: dict[str, str | None] = {}
        wrong = []
        for name in cls.__struct_fields__:
            if name in meta:
                value = None if meta[name] == FOREVER else meta[name]
                try:
                    _check_value(name, getattr(msgspec.convert({name: value}, cls, strict=False), name))
                except (msgspec.ValidationError, ValueError):
                    wrong.append(name)
                else:
                    known[name] = value
        return msgspec.convert(known, cls, strict=False), wrong


#: "No limit" in the meta hash, where an absent field means the default.
FOREVER: Final = "forever"
#: Limits of claims. Without a limit the field is absent, so that a claim has nothing to read.
LIMITS: Final = ("max_rate", "max_burst", "max_in_flight")
#: What a sweep removes. It depends on no other setting.
RETENTION: Final = ("keep_published", "keep_published_count", "keep_dead", "keep_dead_count", "sweep")


def _check_value(name: str, value: Any) -> Any:
    """The value of a setting, as it is stored; raises ValueError if it is out of bounds."""
    if name == "max_rate" and value is not None:
        return parse_rate(value)
    least = 1 if name in LIMITS else 0
    if isinstance(value, int | float) and not least <= value <= LARGEST:  # also for inf and nan
        stop = "; to stop all claims, pause the box" if name == "max_in_flight" and value == 0 else ""
        raise ValueError(f"must be between {least} and {LARGEST:,}{stop}")
    return value


def check_names(names: Any) -> list[str]:
    """The names; raises InvalidSetting if there is no such setting."""
    if isinstance(names, str | bytes) or not isinstance(names, Iterable):
        raise InvalidSetting(f"give a list of settings, not {shown(names)}")
    found = list(names)
    for name in found:
        if not isinstance(name, str) or name not in Settings.__struct_fields__:
            plain = isinstance(name, str) and name.isidentifier() and name.isascii()
            named, known = name if plain else shown(name), ", ".join(Settings.__struct_fields__)
            raise InvalidSetting(f"{named}: there is no such setting; the settings are {known}")
    return found


def to_meta(changes: dict[str, Any]) -> dict[str, str]:
    """Validates changes of settings and returns them as the meta hash stores them."""
    check_names(changes)
    for name, value in changes.items():
        if isinstance(value, timedelta):
            changes = {**changes, name: value.total_seconds()}
    written = {}
    for name, given in changes.items():
        try:
            value = getattr(msgspec.convert({name: given}, Settings), name)
        except (msgspec.ValidationError, UnicodeEncodeError, OverflowError):
            words = {"dead_head": "'skip' or 'block'", "sweep": "'all' or 'archived'", "max_rate": EXPECTED}
            wanted = words.get(name, "a whole number" if name in LIMITS else "a number")
            raise InvalidSetting(f"{name}: must be {wanted}, not {shown(given)}") from None
        try:
            value = _check_value(name, value)
        except ValueError as error:
            problem, stop, advice = str(error).partition("; ")
            raise InvalidSetting(f"{name}: {problem}, not {shown(given)}{stop}{advice}") from None
        whole = isinstance(value, float) and value.is_integer()
        unset = "" if name in LIMITS else FOREVER
        written[name] = unset if value is None else str(int(value) if whole else value)
    return written
