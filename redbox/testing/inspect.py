"""Checks a whole box for broken rules."""

from __future__ import annotations

from redbox.audit import all_problems
from redbox.box import Box


async def check_invariants(box: Box) -> list[str]:
    """Returns every broken rule in words; an empty list for a consistent box. Only for test boxes: it reads the whole
    box. An event of a newer redbox breaks no rule."""
    return [str(problem) async for problem in all_problems(box._store) if problem.rule != "newer"]
