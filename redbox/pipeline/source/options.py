"""The options of the data source: validated, and picklable, since Spark sends them to the tasks."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec

from redbox import keys
from redbox.box.bulk.selection import check_glob
from redbox.errors import InvalidSetting, UsageError
from redbox.events import State, to_ms
from redbox.store import connect

PATIENCE: Final = 60.0  # seconds to wait for an unreachable store
WRITE_PATIENCE: Final = 30.0  # same, for a write
SLICE: Final = 1000  # events per fetch
LOOK: Final = 2000  # events that one script call examines: a few milliseconds of the server's time
PARTITION_SIZE: Final = 25_000  # events per task of a batch read
STREAM_PARTITION_SIZE: Final = 10_000  # events per task of a stream
RANGES_AT_ONCE: Final = 1000  # ranges per call of split_index
MAX_BATCH: Final = 1_000_000  # events in a micro-batch of a drain
TERMINAL: Final = (State.PUBLISHED, State.DEAD)


class Address(msgspec.Struct, frozen=True):
    """The URL of a server, and the name of a box on it."""

    url: str
    box: str

    def __repr__(self) -> str:  # the URL may hold a password
        return f"Address({connect.describe(self.url)!r}, {self.box!r})"


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch read selects: by default the whole box."""

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
    waits_at_once: bool = False  # patience applies to the first call of the store too


class DrainOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A stream that drains a box: its name, the size of a micro-batch, and the lease in seconds.

    `patience` is how many seconds the query waits before it fails: for an unreachable store, and for events of a
    repeated batch that are not available yet. `owner` is the unique name under which the driver holds the stream;
    generated if empty.
    """

    at: Address
    stream: str
    batch: int = 100_000
    lease: float = 60.0
    patience: float = PATIENCE
    on_lost: str = "fail"
    on_unreadable: str = "fail"
    partition_size: int = STREAM_PARTITION_SIZE
    columns: tuple[str, ...] | None = None
    owner: str = ""


class FollowOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is followed. The stream stays `lag` seconds behind, in case the store's clock is set back a little."""

    at: Address
    states: tuple[State, ...] = TERMINAL
    event_type: str = ""
    batch: int = 50_000
    lag: float = 1.0
    since: int | None = None
    patience: float = PATIENCE
    partition_size: int = STREAM_PARTITION_SIZE
    columns: tuple[str, ...] | None = None


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where rows are put, and what happens to rows that cannot be put.

    `job` names the write. Rows without an id get one derived from it, so a failed job that is run again under the same
    name puts only the missing rows. A task fails when the store is unreachable for `patience` seconds.
    """

    at: Address
    job: str
    on_conflict: str = "raise"
    rejects: str | None = None
    durability: str = "server"
    patience: float = WRITE_PATIENCE


class OptionParser:
    """Parses the options that Spark passes. Each is taken once; any that is left at the end is unknown."""

    def __init__(self, options: Mapping[str, str], purpose: str) -> None:
        self._left = {name.lower(): value for name, value in options.items()}
        self._purpose = purpose
        self._known: list[str] = []

    def text(self, name: str, default: str | None = None) -> str | None:
        self._known.append(name)
        return self._left.pop(name.lower(), default)

    def internal(self, name: str) -> str:
        """An option that redbox passes to itself; errors do not list it."""
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

    def columns(self) -> tuple[str, ...] | None:
        words = self.words("columns")
        return None if words is None else tuple(words)

    def states(self, allowed: tuple[State, ...]) -> tuple[State, ...]:
        """States by name; by default all that are allowed."""
        words = self.words("state")
        for word in words or ():
            if word.upper() not in allowed:
                raise UsageError(f"option state: {word!r} is not one of {', '.join(allowed)}")
        return allowed if words is None else tuple(State(word.upper()) for word in words)

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
        """Raises UsageError for an option that was not taken."""
        if self._left:
            name = next(iter(self._left))
            raise UsageError(f"{self._purpose} has no option {name!r}; it has {', '.join(sorted(self._known))}")


def read_options(options: Mapping[str, str]) -> ReadOptions:
    given = OptionParser(options, "reading a box")
    ids = given.words("ids")
    read = ReadOptions(
        at=given.address(),
        states=given.states(tuple(State)),
        event_type=check_glob("option event_type", given.text("event_type") or ""),
        since=given.moment("since"),
        until=given.moment("until"),
        ids=None if ids is None else tuple(dict.fromkeys(ids)),
        columns=given.columns(),
        partition_size=given.number("partition_size", PARTITION_SIZE, 1, 10_000_000),
        slice=given.number("slice", SLICE, 1, 10_000),
        pushdown=given.choice("pushdown", ("true", "false"), "false") == "true",
        patience=given.seconds("patience", PATIENCE),
        waits_at_once="patience" in {name.lower() for name in options},
    )
    given.end()
    return read


def drain_options(options: Mapping[str, str]) -> DrainOptions:
    given = OptionParser(options, "draining a box")
    given.text("mode")
    try:
        stream = keys.check_stream_name(given.required("stream", "lake"))
    except InvalidSetting:
        raise UsageError("option stream: use 1 to 64 letters, digits, '_', '.' and '-'") from None
    drain = DrainOptions(
        at=given.address(),
        stream=stream,
        batch=given.number("maxEventsPerTrigger", 100_000, 1, MAX_BATCH),
        lease=given.seconds("lease", 60.0),
        patience=given.seconds("patience", PATIENCE),
        on_lost=given.choice("onLost", ("fail", "continue"), "fail"),
        on_unreadable=given.choice("onUnreadable", ("fail", "continue"), "fail"),
        partition_size=given.number("partition_size", STREAM_PARTITION_SIZE, 1, MAX_BATCH),
        columns=given.columns(),
        owner=given.internal("owner"),
    )
    given.end()
    if drain.lease < 1:
        raise UsageError("option lease: must be at least one second")
    return drain


def follow_options(options: Mapping[str, str]) -> FollowOptions:
    given = OptionParser(options, "following a box")
    given.text("mode")
    follow = FollowOptions(
        at=given.address(),
        states=given.states(TERMINAL),
        event_type=given.text("event_type") or "",
        batch=given.number("maxEventsPerTrigger", 50_000, 1, 10_000_000),
        lag=given.seconds("lag", 1.0),
        since=given.moment("since"),
        patience=given.seconds("patience", PATIENCE),
        partition_size=given.number("partition_size", STREAM_PARTITION_SIZE, 1, 1_000_000),
        columns=given.columns(),
    )
    given.end()
    return follow


def write_options(options: Mapping[str, str]) -> WriteOptions:
    given = OptionParser(options, "writing into a box")
    write = WriteOptions(
        at=given.address(),
        job=given.text("job") or uuid.uuid4().hex,
        on_conflict=given.choice("on_conflict", ("raise", "skip"), "raise"),
        rejects=given.text("rejects"),
        durability=given.text("durability") or "server",
        patience=given.seconds("patience", WRITE_PATIENCE),
    )
    given.text("checkpointlocation")  # Spark passes it to every sink
    given.text("path")  # and this one if save() or start() was called with a path
    given.end()
    return write
