"""The audit of a box: the rules of a consistent box, and the walk that checks a whole box against them.

async for problem in all_problems(store): ...
"""

from redbox.audit.rules import RULES, Problem
from redbox.audit.walk import all_problems

__all__ = ["RULES", "Problem", "all_problems"]
