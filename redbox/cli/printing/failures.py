"""Exceptions as a sentence and an exit code."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final

import click

from redbox.errors import EmbeddedServerFailed, MissingExtra, NotPermitted, RedboxError, StoreUnavailable, UsageError

FAILED: Final = 1
WRONG_USAGE: Final = 2
NOT_REACHABLE: Final = 3


@dataclass(frozen=True)
class Failure:
    """An error as it is reported: its class, a sentence, and the exit code of the process."""

    error: str
    message: str
    exit_code: int

    def as_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)


def describe_failure(error: Exception) -> Failure:
    """The report of any exception; an unexpected one names --debug."""
    name = type(error).__name__
    if isinstance(error, click.Abort):
        return Failure("Stopped", "stopped before it finished", FAILED)
    if isinstance(error, click.UsageError):
        return Failure("UsageError", _with_hint(error), WRONG_USAGE)
    if isinstance(error, click.ClickException):
        return Failure(name, error.format_message(), error.exit_code)
    if isinstance(error, NotPermitted):  # the server was reached: another URL would not help
        return Failure(name, str(error), FAILED)
    if isinstance(error, EmbeddedServerFailed):
        return Failure(name, str(error), NOT_REACHABLE)
    if isinstance(error, StoreUnavailable):
        hint = "" if error.answered else f"; check {error.url_source}, and that the server is running"
        return Failure(name, f"{error}{hint}", NOT_REACHABLE)
    if isinstance(error, UsageError) and not isinstance(error, MissingExtra):
        return Failure(name, str(error), WRONG_USAGE)
    if isinstance(error, RedboxError):
        return Failure(name, str(error), FAILED)
    if isinstance(error, OSError) and error.filename is not None:
        return Failure(name, f"{error.filename}: {error.strerror}", FAILED)
    return Failure(
        name,
        f"unexpected {name}: {error}; run it again with --debug before the command, and report the traceback",
        FAILED,
    )


def _with_hint(error: click.UsageError) -> str:
    message = error.format_message().rstrip(".")
    if error.ctx is None:
        return message
    return f"{message}; see '{error.ctx.command_path} --help'"
