"""Event ids: UUIDv7, strictly increasing within a process, so that they sort in the order of their creation."""

from __future__ import annotations

import os
import random
import threading
import time

# The milliseconds are followed by a counter of 74 bits that starts at a random value in its lower half. Its upper 26
# bits rarely change and are kept as text; the lower 48 are formatted for each id.
_HIGH_BITS = 26
_LOW_BITS = 48


class _Generator:
    def __init__(self) -> None:
        self._random = random.SystemRandom()
        self.after_fork()

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        # One system call per seed instead of one per id; ids need to be unique, not secret.
        self._step = random.Random(self._random.getrandbits(128))  # noqa: S311  # unique, not secret
        self._millisecond = self._high = self._low = 0
        self._head = ""

    def next(self) -> str:
        with self._lock:
            now = time.time_ns() // 1_000_000
            if now > self._millisecond:
                self._begin(now)
            else:  # the same millisecond, or the clock was set back: keep counting
                self._low += self._step.getrandbits(32) + 1
                if self._low >> _LOW_BITS:
                    self._carry()
            return f"{self._head}{self._low:012x}"

    def _begin(self, millisecond: int) -> None:
        self._millisecond = millisecond
        self._high = self._step.getrandbits(_HIGH_BITS - 1)
        self._low = self._step.getrandbits(_LOW_BITS)
        self._set_head()

    def _carry(self) -> None:
        self._low -= 1 << _LOW_BITS
        self._high += 1
        if self._high >> _HIGH_BITS:
            self._begin(self._millisecond + 1)
        self._set_head()

    def _set_head(self) -> None:
        """Formats the part before the lower bits of the counter, with the version (7) and the variant (binary 10)."""
        time_part, high = f"{self._millisecond:012x}", self._high
        self._head = f"{time_part[:8]}-{time_part[8:]}-7{high >> 14:03x}-{0x8000 | high & 0x3FFF:04x}-"


_generator = _Generator()
os.register_at_fork(after_in_child=_generator.after_fork)

new_id = _generator.next
