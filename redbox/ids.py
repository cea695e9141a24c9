"""Event ids: UUIDv7, strictly increasing within a process, so that ids made in order sort in order."""

from __future__ import annotations

import os
import random
import threading
import time

_COUNTER_BITS = 74  # rand_a (12) and rand_b (62) together: a counter that starts anywhere in its lower half
_RAND_B_BITS = 62


class _Generator:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._random = random.SystemRandom()
        self._millisecond = 0
        self._counter = 0
        self._seed()

    def _seed(self) -> None:
        # One system call per reseed instead of one per id; ids need to be unique, not secret.
        self._step = random.Random(self._random.getrandbits(128))  # noqa: S311  # unique, not secret

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        self._seed()
        self._counter = 0
        self._millisecond = 0

    def next(self) -> str:
        with self._lock:
            now = time.time_ns() // 1_000_000
            if now > self._millisecond:
                self._millisecond = now
                self._counter = self._step.getrandbits(_COUNTER_BITS - 1)
            else:  # the same millisecond, or a clock that went back: go on counting
                self._counter += self._step.getrandbits(32) + 1
                if self._counter >> _COUNTER_BITS:
                    self._millisecond += 1
                    self._counter = self._step.getrandbits(_COUNTER_BITS - 1)
            millisecond, counter = self._millisecond, self._counter
        rand_a, rand_b = counter >> _RAND_B_BITS, counter & ((1 << _RAND_B_BITS) - 1)
        text = f"{(millisecond << 80) | (0x7 << 76) | (rand_a << 64) | (0b10 << 62) | rand_b:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


_generator = _Generator()
os.register_at_fork(after_in_child=_generator.after_fork)

new_id = _generator.next
