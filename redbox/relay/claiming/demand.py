"""How many events a relay should claim now."""

from __future__ import annotations

import asyncio
from typing import Final

from redbox.relay.claiming.buffer import Buffer
from redbox.relay.claiming.ledger import Ledger
from redbox.relay.policy import Policy
from redbox.relay.workers import Workers

#: How much work to keep buffered, in seconds at the recent publish rate: enough that the workers never wait, and not so
#: much that other relays are idle while events wait here.
AHEAD: Final = 0.5
RATE_INTERVAL: Final = 0.1  # seconds over which the publish rate is measured


class Demand:
    """Keeps the buffer filled for half a second of publishing, within the limits of the policy."""

    def __init__(self, policy: Policy, ledger: Ledger, buffer: Buffer, workers: Workers) -> None:
        self._policy = policy
        self._ledger = ledger
        self._buffer = buffer
        self._workers = workers
        self._rate, self._measured_at, self._done_before = 0.0, 0.0, 0

    def events(self, coming: int = 0) -> int:
        """How many events to claim, while `coming` claims are not buffered yet. 0: `buffer.refill` is set when it is
        time to ask again."""
        self._buffer.refill.clear()
        if self._workers.all_stuck:
            return 0
        if self._ledger.bytes >= self._policy.buffer_bytes:
            self._buffer.set_refill_level(len(self._buffer) // 2)
            return 0
        ready = max(1, self._workers.free, min(self._policy.buffer, int(self._publish_rate() * AHEAD)))
        ready = min(ready, self._policy.buffer)
        buffered = len(self._buffer) + coming
        self._buffer.set_refill_level(ready // 2)
        return 0 if buffered > ready // 2 else min(self._policy.batch, ready - buffered)

    def _publish_rate(self) -> float:
        """Recent events per second."""
        now, done = asyncio.get_running_loop().time(), self._workers.done
        elapsed = now - self._measured_at
        if elapsed > RATE_INTERVAL:
            latest = (done - self._done_before) / elapsed
            self._rate, self._measured_at, self._done_before = max(latest, self._rate / 2), now, done
        return self._rate
