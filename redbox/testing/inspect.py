"""Looks at a whole box from outside and says where it contradicts itself."""

from __future__ import annotations

from redbox.audit.walk import all_problems
from redbox.box import Box


async def check_invariants(box: Box) -> list[str]:
    """Every contradiction found, in words; an empty list is a sound box. For boxes of a test: it reads all of it. An
    event of a newer redbox contradicts nothing."""
    return [str(problem) async for problem in all_problems(box._store) if problem.rule != "newer"]
