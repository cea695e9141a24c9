"""Patterns of event types: `*` matches any run of characters, `?` one character, and every other character itself. They
match as the filters of a box do, which the server evaluates."""

from __future__ import annotations

import re
from collections.abc import Callable

from redbox.arguments import text
from redbox.box.bulk.selection import check_glob
from redbox.errors import UsageError


def compile_glob(name: str, glob: str) -> Callable[[str], object]:
    """A function that tests whether an event type matches. `name` is that of the argument, for errors."""
    if not text(name, glob):
        raise UsageError(f"{name}: must not be empty; * matches every event type")
    first, *others = check_glob(name, glob).split("*")
    pattern = _literal(first)
    if others:
        *middle, last = others
        # Each part is matched as early as it can be, and never again elsewhere: no pattern makes the search slow.
        pattern += "".join(f"(?>.*?{_literal(part)})" for part in middle if part) + f".*{_literal(last)}"
    return re.compile(pattern, re.DOTALL).fullmatch


def _literal(part: str) -> str:
    return ".".join(map(re.escape, part.split("?")))
