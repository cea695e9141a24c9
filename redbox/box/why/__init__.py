"""Explains in words where an event is, why it waits, what happens next, and which command changes that."""

from redbox.box.why.explain import explain
from redbox.box.why.explanation import Explanation, Situation, Step

__all__ = ["Explanation", "Situation", "Step", "explain"]
