"""Checks of arguments: an invalid one raises UsageError with a message that names it. And values for messages."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final

from redbox.errors import UsageError

SHOWN: Final = 100
LONGEST_ID: Final = 1000  # longer than any event id: a longer one is refused before it is sent
_ARGUMENTS: Final = ", with args beginning with:"


def shown(value: Any) -> str:
    """Formats a value for an error message: bounded and printable."""
    try:
        text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    except Exception:  # such as an integer with too many digits
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 event`, `2,000 events`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def invalid(name: str, problem: str) -> UsageError:
    """The error of an invalid argument: its name and the problem."""
    error = UsageError(f"{name} {problem}")
    error.argument = name
    return error


def whole_number(name: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """Checks for a whole number between two bounds; `most=None` for no upper bound."""
    if isinstance(value, int) and not isinstance(value, bool) and least <= value and (most is None or value <= most):
        return value
    bounds = f"of at least {least}" if most is None else f"between {least} and {most:,}"
    raise invalid(name, f"must be a whole number {bounds}, not {shown(value)}")


def number(name: str, value: Any) -> float:
    """Checks for a finite number; a bool or text is refused."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            found = float(value)
        except OverflowError:
            found = math.inf
        if math.isfinite(found):
            return found
    raise invalid(name, f"must be a number, not {shown(value)}")


def text(name: str, value: Any) -> str:
    """Checks for a string that can be encoded as UTF-8. Python decodes invalid bytes of a command line to lone
    surrogates, which cannot."""
    if not isinstance(value, str):
        raise invalid(name, f"must be a string, not {shown(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise invalid(name, f"cannot be encoded as UTF-8: {shown(value)}") from None
    return value


def flag(name: str, value: Any) -> bool:
    """Checks for True or False; a truthy value such as "no" is refused."""
    if not isinstance(value, bool):
        raise invalid(name, f"must be True or False, not {shown(value)}")
    return value


def event_ids(ids: Any) -> list[str]:
    """Checks for a list of event ids."""
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise UsageError(f"ids must be a list of event ids, not {shown(ids)}")
    return [_event_id(each) for each in ids]


def _event_id(value: Any) -> str:
    known = text("an event id", value)
    if len(known) > LONGEST_ID:
        raise UsageError(f"an event id is at most {LONGEST_ID} characters long, not {len(known):,}")
    return known


def one_of(name: str, value: Any, choices: Iterable[str]) -> None:
    """Checks that a value is one of the choices."""
    known = tuple(choices)
    if not isinstance(value, str) or value not in known:
        *others, last = (repr(str(choice)) for choice in known)
        raise invalid(name, f"{shown(value)}: use {', '.join(others)} or {last}")


def safe_message(error: Exception) -> str:
    """Returns the message of a server's error without the arguments of the command. A server repeats those of an
    unknown command, and a login's are secret. They are also removed from the error and its causes, since a traceback
    prints them."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        message, found, _ = str(each).partition(_ARGUMENTS)
        if found:
            each.args = (message,)
        each = each.__cause__ or each.__context__
    return str(error)
