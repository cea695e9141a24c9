"""The engine: composes the parts of a relay, runs them, and ends them gracefully."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import anyio

from redbox.box import Box
from redbox.errors import BoxPaused, RedboxError
from redbox.publishers.base import Publisher
from redbox.relay.claiming.buffer import Buffer
from redbox.relay.claiming.capacity import capacity
from redbox.relay.claiming.claimer import Claimer
from redbox.relay.claiming.demand import Demand
from redbox.relay.claiming.ledger import Ledger
from redbox.relay.digest import Digest
from redbox.relay.dispatcher import Dispatcher
from redbox.relay.otel import traced
from redbox.relay.outcomes.breaker import Breaker
from redbox.relay.outcomes.completion import Completion
from redbox.relay.outcomes.dead_letters import DeadLetters
from redbox.relay.outcomes.judge import Judge
from redbox.relay.outcomes.prober import Prober
from redbox.relay.outcomes.settler import Settler
from redbox.relay.policy import Policy
from redbox.relay.report import Tally
from redbox.relay.run_state import RunState
from redbox.relay.workers import Workers

logger = logging.getLogger("redbox.relay")

SETTLE_GRACE: Final = 5.0
CANCEL_GRACE: Final = 2.0


class Engine:
    """The claiming and publishing of one relay, for one run."""

    def __init__(
        self,
        box: Box,
        name: str,
        publisher: Publisher,
        dead_publisher: Publisher | None,
        policy: Policy,
        breaker: Breaker | None,
        tally: Tally,
        digest: Digest,
        breaker_changed: Callable[[], None],
    ) -> None:
        self._box = box
        self._policy = policy
        self._breaker = breaker
        self._tally = tally
        limits = capacity(publisher, policy.concurrency)
        self.state = RunState()
        self._buffer = Buffer(dead_letters_first=limits.calls > 1)  # a single worker takes them in their turn
        self.ledger = Ledger(box, self._buffer, digest, policy.lease)
        self._settler = Settler(box, tally, self.ledger, delete=policy.delete, drop=policy.drop)
        self._judge = Judge(
            policy, breaker, self.state, self.ledger, self._buffer, self._settler, tally, digest,
            has_dead_letter_target=dead_publisher is not None, breaker_changed=breaker_changed,
        )  # fmt: skip
        dead_letters = None
        if dead_publisher is not None:
            dead_publisher = traced(dead_publisher, box.name, name)
            dead_letters = DeadLetters(dead_publisher, self._judge, self._buffer, workers=limits.calls)
        self.workers = Workers(
            traced(publisher, box.name, name), dead_letters, self._judge, self._settler, self._buffer,
            capacity=limits, time_limit=policy.time_limit,
        )  # fmt: skip
        self._claimer = Claimer(box, name, policy)
        completion = Completion(self.state, self.ledger, self.workers, self._judge, breaker)
        self._dispatcher = Dispatcher(
            state=self.state,
            ledger=self.ledger,
            claimer=self._claimer,
            demand=Demand(policy, self.ledger, self._buffer, self.workers),
            workers=self.workers,
            judge=self._judge,
            settler=self._settler,
            completion=completion,
            prober=Prober(breaker, self.state, self.workers, self._judge, completion, breaker_changed),
            tally=tally,
            digest=digest,
        )

    @property
    def held(self) -> int:
        """The number of held claims."""
        return len(self.ledger)

    def stop(self) -> None:
        """Claims nothing more; `run` returns when the held claims are settled or the grace time is over."""
        self.state.stop()

    async def run(self, *, drain: bool = False) -> None:
        """Runs until it is stopped or, to drain, until nothing is available."""
        self.state.set_draining(drain)
        self._tally.stuck = ""
        self._tally.undelivered.clear()
        if self._breaker is not None:
            self._breaker.dismiss()  # a doubt of an earlier run
        refused: BoxPaused | None = None
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._settler.run)
                tasks.start_soon(self.workers.run)
                tasks.start_soon(self.ledger.run)
                try:
                    await self._dispatcher.run(drain=drain)
                except BoxPaused as error:
                    refused = error  # raised when the held claims are settled
                await self._finish()
                tasks.cancel_scope.cancel()
        finally:
            await self._claimer.stop_waiting()
            await self._dispatcher.last_claims()
            if self.ledger:
                with anyio.move_on_after(CANCEL_GRACE, shield=True):
                    await self._release_held()
            if self.ledger:
                one = "1 event returns to PENDING when its lease ends"
                many = f"{len(self.ledger):,} events return to PENDING when their leases end"
                logger.warning("%s", one if len(self.ledger) == 1 else many)
                self._tally.unsettled += len(self.ledger)
        if refused is not None:
            raise refused

    async def _finish(self) -> None:
        """Releases the claims that are not being published, gives the others the grace time to be published,
        and settles them."""
        self.state.stop()
        self._settler.release_all(await self._dispatcher.last_claims())
        self._settler.release_all(self._buffer.withdraw())
        with anyio.move_on_after(self._policy.grace):
            while not self.workers.idle:
                self._buffer.refill.clear()
                await self._buffer.refill.wait()
        self.workers.interrupt()
        self._judge.excuse_pending()
        with anyio.move_on_after(SETTLE_GRACE):
            while self.ledger:
                await self.ledger.notify_at(0).wait()

    async def _release_held(self) -> None:
        """The relay was cancelled: settles the known outcomes, and returns all other events to PENDING now instead of
        when their leases end."""
        with suppress(RedboxError):
            await self._settler.settle_all()
        helds = list(self.ledger)
        try:
            released = await self._box.release([held.claim for held in helds])
        except RedboxError as error:
            logger.warning("claims could not be released: %s", error)
            return
        self.ledger.forget(helds)
        self._tally.released += sum(released)
        self._tally.fenced += len(released) - sum(released)
