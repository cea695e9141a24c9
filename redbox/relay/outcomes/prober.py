"""Probes: while the breaker is not closed, samples of the available events show whether the target works."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from redbox.relay.outcomes.breaker import Breaker, Circuit
from redbox.relay.outcomes.completion import Completion
from redbox.relay.outcomes.judge import Judge
from redbox.relay.run_state import RunState
from redbox.relay.workers import Workers


class Prober:
    """Begins and ends samples."""

    def __init__(
        self,
        breaker: Breaker | None,
        state: RunState,
        workers: Workers,
        judge: Judge,
        completion: Completion,
        breaker_changed: Callable[[], None],
    ) -> None:
        self._breaker = breaker
        self._state = state
        self._workers = workers
        self._judge = judge
        self._completion = completion
        self._breaker_changed = breaker_changed
        self._others_held = False  # when the sample began, other claims were held

    @property
    def breaker(self) -> Breaker | None:
        """The breaker while it is not closed."""
        return None if self._breaker is None or self._breaker.closed else self._breaker

    @property
    def is_open(self) -> bool:
        return self._breaker is not None and self._breaker.circuit is Circuit.OPEN

    @property
    def seconds_until_probe(self) -> float:
        """Seconds until events may be claimed; 0 for now."""
        return 0.0 if self._breaker is None else self._breaker.wait()

    def may_publish(self, *, probe: bool) -> bool:
        """Whether the breaker, which may have changed since they were claimed, lets events through. `probe`: they were
        claimed for a sample."""
        return self.breaker is None or (probe and not self.is_open)

    def dismiss(self) -> None:
        """Gives up a doubt that cannot be resolved now."""
        if self._breaker is not None:
            self._breaker.dismiss()

    def begin(self, breaker: Breaker) -> int:
        """Begins a sample; returns how many events to claim for it. Those that cannot be published at once would wait
        for each other: two are enough to see both ends of the available events."""
        self._others_held = self._judge.holds_others
        was_open = self.is_open
        size = breaker.probe()
        if was_open:
            self._breaker_changed()
        return size if breaker.doubting or not breaker.first_sample else min(size, max(2, self._workers.free))

    def can_end(self, breaker: Breaker) -> bool:
        """Whether a sample without new events would show something: some have failed already."""
        return breaker.doubting or self._judge.pending > 0

    async def end(self, breaker: Breaker, found: int) -> None:
        """Waits until one of the `found` events of a sample is published, or all have failed."""
        with anyio.move_on_after(breaker.patience()) as patience:
            await self._completion.until_tried()
        doubted, hangs = breaker.doubting, patience.cancelled_caught
        if self._state.stopping or (doubted and self._others_held and not hangs):
            return  # claims that were released meanwhile may be the good ones: they can be sampled now
        if breaker.sample_failed(found, hangs=hangs):
            self._judge.breaker_opened(breaker, doubted=doubted)
