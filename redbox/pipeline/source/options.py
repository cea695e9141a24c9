"""The options of the data source: validated, and picklable, since they travel to the tasks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec

from redbox import keys
from redbox.box.selection import check_glob
from redbox.errors import InvalidSetting, UsageError
from redbox.events import State, to_ms
from redbox.store import connect

PATIENCE: Final = 60.0  # seconds for which a store that is away is waited for
SLICE: Final = 1000
LOOK: Final = 2000  # events that one step of a read looks at: some milliseconds of the server's time
PARTITION_SIZE: Final = 25_000
RANGES_AT_ONCE: Final = 1000  # in one look at an index


class Address(msgspec.Struct, frozen=True):
    """Where a box is."""

    url: str
    box: str

    def __repr__(self) -> str:  # the URL may hold a password
        return f"Address({connect.describe(self.url)!r}, {self.box!r})"


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch read takes in: by default the whole box."""

    at: Address
    states: tuple[State, ...] = tuple(State)
    event_type: str = ""
    since: int | None = None
    until: int | None = None
    ids: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None
    partition_size: int = PARTITION_SIZE
    slice: int = SLICE
    pushdown: bool = False
    patience: float = PATIENCE
    waits_at_once: bool = False  # also for the first answer of the store


class Given:
    """Options as Spark hands them over; each is taken once, and what is left at the end was misspelt."""

    def __init__(self, options: Mapping[str, str], purpose: str) -> None:
        self._left = {name.lower(): value for name, value in options.items()}
        self._purpose = purpose
        self._known: list[str] = []

    def text(self, name: str, default: str | None = None) -> str | None:
        self._known.append(name)
        return self._left.pop(name.lower(), default)

    def internal(self, name: str) -> str:
        """An option that redbox passes to itself: not among those that an error lists."""
        return self._left.pop(name, "")

    def required(self, name: str, example: str) -> str:
        value = self.text(name)
        if not value:
            raise UsageError(f'{self._purpose} needs the option {name}: .option("{name}", "{example}")')
        return value

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        value = self.text(name, default)
        if value not in choices:
            raise UsageError(f"option {name}: use {' or '.join(map(repr, choices))}, not {value!r}")
        return value

    def number(self, name: str, default: int, least: int, most: int) -> int:
        value = self.text(name)
        if value is None:
            return default
        if not value.strip().isdecimal() or not least <= int(value) <= most:
            raise UsageError(f"option {name}: must be a whole number between {least:,} and {most:,}, not {value!r}")
        return int(value)

    def seconds(self, name: str, default: float) -> float:
        value = self.text(name)
        if value is None:
            return default
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if not 0 <= number <= 86_400:
            raise UsageError(f"option {name}: must be seconds between 0 and 86,400, not {value!r}")
        return number

    def words(self, name: str) -> list[str] | None:
        value = self.text(name)
        return None if value is None else [word for part in value.split(",") if (word := part.strip())]

    def moment(self, name: str) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            raise UsageError(f"option {name}: must be a time with a zone such as 2026-01-31T12:00:00Z, not {value!r}")
        return to_ms(moment)

    def address(self) -> Address:
        url = self.required("url", "redis://localhost:6379/0")
        if url.startswith("memory:"):
            raise UsageError("option url: memory: is a box of one process, and Spark has several; use a real server")
        box = self.required("box", "orders")
        connect.from_url(url)
        try:
            return Address(url, keys.check_box_name(box))
        except InvalidSetting as error:
            raise UsageError(f"option box: {error}") from None

    def end(self) -> None:
        """Whatever was not taken is not an option."""
        if self._left:
            name = next(iter(self._left))
            raise UsageError(f"{self._purpose} has no option {name!r}; it has {', '.join(sorted(self._known))}")


def read_options(options: Mapping[str, str]) -> ReadOptions:
    given = Given(options, "reading a box")
    states, ids, columns = given.words("state"), given.words("ids"), given.words("columns")
    read = ReadOptions(
        at=given.address(),
        states=tuple(State) if states is None else states_of(states),
        event_type=check_glob("option event_type", given.text("event_type") or ""),
        since=given.moment("since"),
        until=given.moment("until"),
        ids=None if ids is None else tuple(dict.fromkeys(ids)),
        columns=None if columns is None else tuple(columns),
        partition_size=given.number("partition_size", PARTITION_SIZE, 1, 10_000_000),
        slice=given.number("slice", SLICE, 1, 10_000),
        pushdown=given.choice("pushdown", ("true", "false"), "false") == "true",
        patience=given.seconds("patience", PATIENCE),
        waits_at_once="patience" in {name.lower() for name in options},
    )
    given.end()
    return read


def states_of(words: list[str], allowed: tuple[State, ...] = tuple(State)) -> tuple[State, ...]:
    """States by name."""
    for word in words:
        if word.upper() not in allowed:
            raise UsageError(f"option state: {word!r} is not one of {', '.join(allowed)}")
    return tuple(State(word.upper()) for word in words)
