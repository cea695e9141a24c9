"""Checks of arguments: a wrong one raises UsageError with a sentence that names it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final

from redbox.errors import UsageError

SHOWN: Final = 100
LONGEST_ID: Final = 1000  # more than any event has: a name that long only costs time
_ARGUMENTS: Final = ", with args beginning with:"


def shown(value: Any) -> str:
    """A value for an error message: bounded, and printable whatever it holds."""
    try:
        text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    except Exception:  # such as an integer of too many digits
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def whole_number(name: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """A whole number between the two bounds."""
    if isinstance(value, int) and not isinstance(value, bool) and least <= value and (most is None or value <= most):
        return value
    bounds = f"of at least {least}" if most is None else f"between {least} and {most:,}"
    raise UsageError(f"{name} must be a whole number {bounds}, not {shown(value)}")


def number(name: str, value: Any) -> float:
    """A finite number; not a bool, and not text."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            found = float(value)
        except OverflowError:
            found = math.inf
        if math.isfinite(found):
            return found
    raise UsageError(f"{name} must be a number, not {shown(value)}")


def text(name: str, value: Any) -> str:
    """A string that can be sent: UTF-8 has no lone surrogates, which a shell makes of bytes that are not UTF-8."""
    if not isinstance(value, str):
        raise UsageError(f"{name} must be a string, not {shown(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{name} cannot be encoded as UTF-8: {shown(value)}") from None
    return value


def flag(name: str, value: Any) -> bool:
    """True or False, and nothing that is only taken for one of them, such as "no"."""
    if not isinstance(value, bool):
        raise UsageError(f"{name} must be True or False, not {shown(value)}")
    return value


def event_ids(ids: Any) -> list[str]:
    """Several ids."""
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise UsageError(f"ids must be a list of event ids, not {shown(ids)}")
    return [_event_id(each) for each in ids]


def _event_id(value: Any) -> str:
    known = text("an event id", value)
    if len(known) > LONGEST_ID:
        raise UsageError(f"an event id is at most {LONGEST_ID} characters long, not {len(known):,}")
    return known


def one_of(name: str, value: Any, choices: Iterable[str]) -> None:
    """One of a few words."""
    known = tuple(choices)
    if not isinstance(value, str) or value not in known:
        *others, last = (repr(str(choice)) for choice in known)
        raise UsageError(f"{name} {shown(value)}: use {', '.join(others)} or {last}")


def said(error: Exception) -> str:
    """What a server or a library says, without the arguments of a command: of one that it does not know, such as a
    login, a server repeats them. The error and its causes forget them too, since a traceback prints them."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        told, found, _ = str(each).partition(_ARGUMENTS)
        if found:
            each.args = (told,)
        each = each.__cause__ or each.__context__
    return str(error)
