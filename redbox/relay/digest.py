"""Repeated log messages: the first of each kind is written at once, later ones are counted."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from typing import Any, Final

logger = logging.getLogger("redbox.relay")

WINDOW: Final = 60.0
KINDS: Final = 20  # per subject; further kinds are counted together
KEPT: Final = 200  # leading characters of a text that determine its kind
_STORE: Final = "store"

_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")
#: Ids, hashes and numbers, but not three digits, which may be an HTTP status.
_NUMBERED: Final = re.compile(r"(?<![\w-])(?!\d{3}(?![\w-]))[\w-]*\d[\w-]*")


class _Kind:
    """One kind of message: its name in a summary, its latest text, the count of repetitions, and the start of its
    window."""

    __slots__ = ("count", "event_id", "latest", "level", "name", "since")

    def __init__(self, level: int, since: float, name: str = "like this") -> None:
        self.level = level
        self.name = name
        self.latest = ""
        self.event_id = ""
        self.since = since
        self.count = 0


class Digest:
    """Writes the first message of each kind, and then once per window how many more there were, and the latest of them.

    A kind without a message for a whole window is forgotten: its next message is written at once. Memory and output are
    bounded by the number of kinds. It is a service of the relay: `run_once` closes the window.
    """

    every = WINDOW

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kinds: dict[tuple[str, str], _Kind] = {}
        self._without_store: set[str] = set()

    def write(self, level: int, subject: str, text: str, reason: str, event_id: str = "") -> None:
        """Writes `text: reason`, or counts it. Messages with one subject and similar reasons are of one kind. A message
        about an event has its `event_id` as an extra field; a count has that of the latest."""
        now, message = self._clock(), f"{text}: {reason}"
        extra = {"event_id": event_id} if event_id else None
        key = subject, fold(reason)
        kind = self._kinds.get(key)
        if kind is None and sum(each == subject for each, _ in self._kinds) >= KINDS:
            kind = self._kinds.setdefault((subject, ""), _Kind(level, now, "of other kinds"))
        if kind is None:
            self._kinds[key] = _Kind(level, now)
            logger.log(level, message, extra=extra)
            return
        logger.debug(message, extra=extra)
        if now - kind.since >= WINDOW:
            self._close(kind, now)
        kind.count += 1
        kind.latest, kind.event_id = message, event_id

    def store_failed(self, part: str, text: str, error: Exception) -> None:
        """A part of the relay got no answer from the store."""
        self._without_store.add(part)
        self.write(logging.WARNING, _STORE, text, str(error))

    def store_answered(self, part: str) -> None:
        """A part of the relay got an answer; logged once no part is left without one."""
        if part not in self._without_store:
            return
        self._without_store.discard(part)
        if not self._without_store:
            now = self._clock()
            for key in [key for key in self._kinds if key[0] == _STORE]:  # the next outage is written at once
                self._close(self._kinds.pop(key), now)
            logger.info("the store answers again")

    async def run_once(self) -> None:
        self.flush()

    def flush(self) -> None:
        """Writes the counts since the last call."""
        now = self._clock()
        for key, kind in list(self._kinds.items()):
            if not kind.count:
                del self._kinds[key]
            self._close(kind, now)

    def _close(self, kind: _Kind, now: float) -> None:
        if kind.count:
            text = f"{kind.count:,} more {kind.name} in the last {max(1.0, now - kind.since):.0f} s"
            extra: dict[str, Any] = {"more": kind.count} | ({"event_id": kind.event_id} if kind.event_id else {})
            logger.log(kind.level, f"{text}, the latest: {kind.latest}", extra=extra)
        kind.count, kind.since = 0, now


def fold(text: str) -> str:
    """The text without the ids, numbers and quotations that differ from event to event."""
    return _NUMBERED.sub("#", _QUOTED.sub("'…'", text[:KEPT]))
