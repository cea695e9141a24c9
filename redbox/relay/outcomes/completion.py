"""Waits until held claims are settled, or have a pending verdict."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from redbox.relay.claiming.ledger import Ledger
from redbox.relay.outcomes.breaker import Breaker
from redbox.relay.outcomes.judge import Judge
from redbox.relay.run_state import RunState
from redbox.relay.workers import Workers


class Completion:
    """Every wait also ends when the relay is stopped."""

    def __init__(
        self, state: RunState, ledger: Ledger, workers: Workers, judge: Judge, breaker: Breaker | None
    ) -> None:
        self._state = state
        self._ledger = ledger
        self._workers = workers
        self._judge = judge
        self._breaker = breaker

    async def until_at_most(self, count: int, *, more_to_try: bool = False) -> None:
        """Waits until the relay holds at most `count` claims, without those that are lost. Pending verdicts are decided
        if no other claim is held. `more_to_try`: other events wait for this, so they are excused instead."""
        while self._ledger.owned > count and not self._state.stopping:
            if not more_to_try and self._breaker is not None and self._breaker.doubting:
                return  # a sample is due
            self._judge.decide_if_idle(self._workers, more_to_try=more_to_try)
            await self._change(count)

    async def until_tried(self) -> None:
        """Waits until only the claims of pending verdicts are held, or an event of a probe is published."""
        probing = self._breaker is not None and not self._breaker.closed
        while self._judge.holds_others and not self._state.stopping:
            if probing and self._breaker is not None and self._breaker.closed:
                return
            await self._change(0)

    async def _change(self, count: int) -> None:
        """Waits until claims were forgotten and at most `count` are left, or until the workers ask for events."""
        shrunk, refill = self._ledger.notify_at(count), self._workers.buffer.refill
        refill.clear()
        await self._state.wait_for(_first_of(shrunk.wait, refill.wait))


async def _first_of(*waits: Callable[[], Awaitable[Any]]) -> None:
    """Returns when the first of them completes."""
    async with anyio.create_task_group() as group:

        async def one(wait: Callable[[], Awaitable[Any]]) -> None:
            await wait()
            group.cancel_scope.cancel()

        for wait in waits:
            group.start_soon(one, wait)
