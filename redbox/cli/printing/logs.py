"""Logs of a long-running process on stderr: text for people, or one JSON object per record for machines."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final, Literal

from redbox.cli.printing.output import printable
from redbox.terminals import escape_json

Format = Literal["text", "json"]

#: Fields that every record of the current task carries, such as its box and relay.
about: ContextVar[dict[str, str] | None] = ContextVar("about", default=None)

_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName", "color_message"}

#: Libraries that log, with tracebacks, what redbox reports as the reason of an attempt.
_REPEATING: Final = frozenset({"aiormq"})


class JSONFormatter(logging.Formatter):
    """One object per record: time, level, logger, message, the fields of `about`, and the `extra` fields."""

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
    """`12:00:01 WARNING the breaker is open`; in a pipe with the date, and in UTC. Control characters are escaped: a
    message may quote text that others wrote."""

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
    """The time of the record."""
    return datetime.fromtimestamp(record.created, UTC)


def extra(record: logging.LogRecord) -> dict[str, Any]:
    """The fields that the caller passed as `extra`."""
    return {name: value for name, value in record.__dict__.items() if name not in _STANDARD}


class _Handler(logging.StreamHandler[Any]):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging names it so
        """Ignores the error: a closed stderr must not disturb the relays."""


@contextmanager
def to_stderr(form: Format, level: int, *, name_box: bool = False) -> Iterator[None]:
    """While the block runs, logs redbox at `level` and above, and other libraries at WARNING and above, except those
    that only repeat redbox. With `name_box` each text record begins with its box."""
    handler = _Handler(sys.stderr)
    terminal = sys.stderr.isatty()
    handler.setFormatter(JSONFormatter(terminal) if form == "json" else TextFormatter(terminal, name_box=name_box))
    if level > logging.DEBUG:
        handler.addFilter(lambda record: record.name.partition(".")[0] not in _REPEATING)
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
