"""Reasons that the relay itself gives for an event that was not published."""

from __future__ import annotations

from redbox.errors import NotPublished


class Exhausted(NotPublished):
    """The event has used up its attempts."""


class TooOld(NotPublished):
    """The event was not published within its maximum age."""


class Interrupted(NotPublished):
    """The relay was stopped during the publish; the target may have received the event."""


class TimeLimit(NotPublished):
    """The publisher did not return within the time limit."""
