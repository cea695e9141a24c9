"""Logs of a process that stays: lines of text for people, or lines of JSON for machines, on stderr."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final, Literal

from redbox.cli.output import printable
from redbox.terminals import escape_json

Format = Literal["text", "json"]

#: What every record of the current task is about, such as its box and relay.
about: ContextVar[dict[str, str] | None] = ContextVar("about", default=None)

_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName", "color_message"}


class JSONFormatter(logging.Formatter):
    """One object per line: time, level, logger, message, what the record is about, and its `extra` fields."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": moment(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **(about.get() or {}),
            **extra(record),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        line = json.dumps(fields, ensure_ascii=False, default=str)
        return escape_json(line) if self._terminal else line


class TextFormatter(logging.Formatter):
    """`12:00:01 WARNING the breaker is open`; in a pipe with the date, and in UTC. What is logged may hold the words of
    others: it never reaches a terminal unescaped."""

    def __init__(self, terminal: bool, *, name_box: bool) -> None:
        super().__init__()
        self._terminal = terminal
        self._name_box = name_box

    def format(self, record: logging.LogRecord) -> str:
        at = moment(record)
        time = f"{at.astimezone():%H:%M:%S}" if self._terminal else f"{at:%Y-%m-%dT%H:%M:%SZ}"
        box = (about.get() or {}).get("box") if self._name_box else None
        text = printable(f"{box}: {record.getMessage()}" if box else record.getMessage())
        if record.exc_info:
            text += "\n" + printable(self.formatException(record.exc_info), keep="\n")
        return f"{time} {record.levelname} {text}"


def moment(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def extra(record: logging.LogRecord) -> dict[str, Any]:
    """What was given as `extra`."""
    return {name: value for name, value in record.__dict__.items() if name not in _STANDARD}


class _Handler(logging.StreamHandler[Any]):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging names it so
        """Nobody reads the log any more: that must not disturb the work."""


@contextmanager
def to_stderr(how: Format, level: int, *, name_box: bool = False) -> Iterator[None]:
    """Logs of redbox from `level` on, and warnings of everything else, while the block runs. `name_box`: text lines
    begin with the box they are about."""
    handler = _Handler(sys.stderr)
    terminal = sys.stderr.isatty()
    handler.setFormatter(JSONFormatter(terminal) if how == "json" else TextFormatter(terminal, name_box=name_box))
    root, ours = logging.getLogger(), logging.getLogger("redbox")
    before = root.level, ours.level
    root.addHandler(handler)
    root.setLevel(max(level, logging.WARNING))
    ours.setLevel(level)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root.removeHandler(handler)
        root.setLevel(before[0])
        ours.setLevel(before[1])
