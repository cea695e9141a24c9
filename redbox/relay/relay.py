"""Relay: publishes the events of a box until it is stopped."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Literal, Self, Unpack
from uuid import uuid4

import anyio

from redbox.box import Box
from redbox.box.claims import check_relay
from redbox.durations import Duration, positive_duration
from redbox.errors import BoxPaused, StoreError, UsageError
from redbox.events import Claim
from redbox.publishers.registry import Target, open_target, option_names
from redbox.relay.alerts import Alerts
from redbox.relay.alerts.conditions import ALERT_AGE
from redbox.relay.digest import Digest
from redbox.relay.engine import Engine
from redbox.relay.limits import BoxLimits, check_limits
from redbox.relay.middleware import Middleware, check_middleware, with_middleware
from redbox.relay.otel import uses_metrics
from redbox.relay.outcomes.breaker import Breaker, Circuit
from redbox.relay.policy import Policy, PolicySettings, check_interval, check_policy, show_settings
from redbox.relay.report import PublishRate, Summary, Tally
from redbox.relay.services import (
    BEAT_EVERY,
    REAP_EVERY,
    SWEEP_EVERY,
    Heartbeat,
    LossWatch,
    RateRecorder,
    Reaper,
    Service,
    Sweeper,
    serve,
)  # fmt: skip

logger = logging.getLogger("redbox.relay")

LEAVE_GRACE = 0.5
LAST_ALERTS = 10.0  # seconds for the alerts at the end of a drain
LONGEST_ERROR = 300  # characters of an error in the heartbeat


class Relay:
    """Claims events of a box, publishes each to a target, and settles it.

    `publish`: an async or plain function of (event) or (event, claim), a Publisher, or a URL. `options`: the options of
    that URL or function, such as `{"secret": ...}`. The outcome depends on the exception that `publish` raises: none →
    PUBLISHED, `Reject` → DEAD, `RetryLater` → retried after its delay, any other → retried after that of `backoff`.

    `name`: the name of the relay, which no other relay of the box may have; by default host, pid and a random suffix.
    `middleware`: async functions of (claim, publish) around each publish to the target, the first outermost.
    `dead_to`: the dead-letter target, which receives each event before it is marked DEAD; `dead_options`: its options.
    `alerts_to`: the target of alerts about the box and its relays, such as an open breaker; `alerts_options`: its
    options. `alert_age`: the age of the oldest available event above which an alert is sent; default 5 min.
    `max_rate` ("50/s"), `max_burst`, `max_in_flight`: limits for all relays of the box together. They are written as
    settings of the box when the relay starts; None leaves the setting as it is.
    `breaker`: None to publish even while the target is down. `reap_every`, `sweep_every`, `beat_every`: seconds between
    two runs of a service; None turns it off.

    The policy; durations are in seconds, or a timedelta:

    - `backoff`: the delay between attempts; by default exponential, from 1 s to 5 min, with jitter.
    - `attempts`: maximum attempts per event, after which it is DEAD; None for no limit. Default 10.
    - `max_age`: maximum age; an event not published this long after it was due is DEAD. Default no limit.
    - `lease`: how long a claim is valid if this process ends; while it runs, it renews. Default 30.
    - `concurrency`: maximum events being published at once. Default 100.
    - `batch`: maximum events per claim, up to 1,000. Default 100.
    - `buffer`, `buffer_bytes`: maximum events, and payload bytes, that wait in the relay. Default 1,000 and 32 MiB.
    - `time_limit`: maximum duration of one publish; None for no limit. Default 30.
    - `poll`: maximum delay of an event whose hint got lost. Default 2.
    - `grace`: how long `stop` waits for events being published. Default 10.
    - `on_success`: "keep" published events for the retention of the box, or "delete" them.
    - `on_dead`: "keep" dead events for the retention of the box, or "drop" them.
    """

    def __init__(
        self,
        box: Box,
        publish: Target,
        *,
        options: Mapping[str, Any] | None = None,
        name: str | None = None,
        middleware: Sequence[Middleware] = (),
        dead_to: Target | None = None,
        dead_options: Mapping[str, Any] | None = None,
        alerts_to: Target | None = None,
        alerts_options: Mapping[str, Any] | None = None,
        alert_age: Duration = ALERT_AGE,
        max_rate: str | None = None,
        max_burst: int | None = None,
        max_in_flight: int | None = None,
        breaker: Breaker | Literal["default"] | None = "default",
        reap_every: float | None = REAP_EVERY,
        sweep_every: float | None = SWEEP_EVERY,
        beat_every: float | None = BEAT_EVERY,
        **settings: Unpack[PolicySettings],
    ) -> None:
        self._box = box
        if not isinstance(box, Box):
            raise UsageError("a relay takes a box: Relay(Box.open(...), publish)")
        self._publisher = open_target("options", publish, options)
        self._middleware = check_middleware(middleware)
        if dead_to is None and dead_options:
            raise UsageError("dead_options are for dead_to, which is not given")
        self._dead_publisher = None if dead_to is None else open_target("dead_options", dead_to, dead_options)
        if alerts_to is None and alerts_options:
            raise UsageError("alerts_options are for alerts_to, which is not given")
        self._alerts_publisher = None if alerts_to is None else open_target("alerts_options", alerts_to, alerts_options)
        for publisher in (self._publisher, self._dead_publisher, self._alerts_publisher):
            if publisher is not None:
                publisher.attach(box)
        self._alert_age = positive_duration("alert_age", alert_age)
        self._policy = check_policy(settings, lambda name: _where_it_belongs(name, publish, dead_to))
        self.name = name or f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:6]}"
        check_relay(self.name)
        limits = check_limits(max_rate=max_rate, max_burst=max_burst, max_in_flight=max_in_flight)
        self._limits = BoxLimits(box, self.name, limits)
        if breaker is not None and breaker != "default" and not isinstance(breaker, Breaker):
            raise UsageError("breaker must be a Breaker, or None for none")
        self.breaker = Breaker() if breaker == "default" else breaker
        self.tally = Tally(self._published, self._died)
        self._rate = PublishRate()
        self._digest = Digest()
        self._started = time.monotonic()
        self._heartbeat: Heartbeat | None = None
        self._sweeper: Sweeper | None = None
        self._alerts: Alerts | None = None
        self._intervals = (
            check_interval("reap_every", reap_every),
            check_interval("sweep_every", sweep_every),
            check_interval("beat_every", beat_every),
        )
        self._engine: Engine | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # of the last run
        self._task: asyncio.Task[Summary] | None = None
        self._began = asyncio.Event()
        self._stopped = False
        self._last_sweep: anyio.CancelScope | None = None  # at the end of a drain

    def __repr__(self) -> str:
        return f"Relay({self.name!r}: {self._box.name} to {self._publisher.target})"

    # --- running -------------------------------------------------------------------------------------------------

    async def run(self) -> Summary:
        """Publishes until it is stopped. Meanwhile it reaps, sweeps and sends heartbeats."""
        services = self._services()
        with self._in_use() as engine:
            async with anyio.create_task_group() as beside:
                for service in services:
                    beside.start_soon(serve, service, self._digest)
                try:
                    await self._run(engine, drain=False)
                finally:
                    beside.cancel_scope.cancel()
                    with anyio.move_on_after(LEAVE_GRACE, shield=True):
                        for service in services:
                            if isinstance(service, Heartbeat | Alerts):
                                await service.leave()
        return self.summary()

    async def drain(self) -> Summary:
        """Publishes until nothing is available, and sweeps meanwhile. Events that are not due yet are left.

        Also ends when the breaker opens, and when all calls of the publisher hang: `open` or `stuck` of the summary
        says why. Its `undelivered` names events that were tried and are to be retried later. Raises BoxPaused, after
        the alerts were sent.
        """
        paused: BoxPaused | None = None
        with self._in_use() as engine:
            await Reaper(self._box).run_once()
            async with anyio.create_task_group() as beside:
                sweepers = [service for service in self._services() if isinstance(service, Sweeper)]
                for sweeper in sweepers:
                    beside.start_soon(serve, sweeper, self._digest)
                try:
                    await self._run(engine, drain=True)
                except BoxPaused as error:
                    paused = error
                finally:
                    beside.cancel_scope.cancel()
            with anyio.CancelScope() as self._last_sweep:
                for sweeper in sweepers if paused is None else ():
                    await self._sweep_at_the_end(sweeper)
                if self._alerts is not None:
                    await self._send_alerts_at_the_end(self._alerts)
                with suppress(StoreError):  # it is only a warning
                    await LossWatch(self._box).run_once()
            self._last_sweep = None
        if paused is not None:
            raise paused
        return self.summary()

    async def _sweep_at_the_end(self, sweeper: Sweeper) -> None:
        if self._stopped:
            return
        try:
            await sweeper.run_once()
        except StoreError as error:  # every event is published all the same
            logger.warning("the last sweep failed: %s", error)

    async def _send_alerts_at_the_end(self, alerts: Alerts) -> None:
        with anyio.move_on_after(LAST_ALERTS):
            try:
                await alerts.run_once()
            except StoreError as error:
                logger.warning("the alerts were not sent: %s", error)
            finally:
                await alerts.leave()

    def stop(self) -> None:
        """Stops the relay: buffered events are returned to PENDING, and those being published have the grace time.

        May be called more than once, and before `run`.
        """
        self._stopped = True
        if self._engine is not None:
            self._engine.stop()
        if self._last_sweep is not None:
            self._last_sweep.cancel()

    async def __aenter__(self) -> Self:
        if self._task is not None or self.running:
            raise UsageError("this relay is running already")
        self._began = asyncio.Event()
        task = self._task = asyncio.create_task(self.run(), name=f"redbox relay {self.name}")
        task.add_done_callback(self._log_failure)
        began = asyncio.ensure_future(self._began.wait())
        try:
            await asyncio.wait((task, began), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._task = None
            task.cancel()
            raise
        finally:
            began.cancel()
        if task.done() and not self._began.is_set():
            self._task = None
            await task  # raises the error of its start
        return self

    def _log_failure(self, task: asyncio.Task[Summary]) -> None:
        """The code of the `async with` block would not learn of it before the end of the block."""
        if self._began.is_set() and not task.cancelled() and task.exception() is not None:
            logger.error("relay %s has failed: %s", self.name, task.exception())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        assert task is not None
        if not task.done():
            self.stop()
        await task

    @contextmanager
    def _in_use(self) -> Iterator[Engine]:
        """Allows one run at a time. Its error is raised without the exception groups of the tasks."""
        if self.running:
            raise UsageError("this relay is running already")
        self._loop = asyncio.get_running_loop()
        self._started = time.monotonic()
        engine = self._engine = Engine(
            self._box, self.name, with_middleware(self._publisher, self._middleware), self._dead_publisher,
            self._policy, self.breaker, self.tally, self._digest, self._beat_soon,
        )  # fmt: skip
        if self._stopped:
            engine.stop()
        try:
            yield engine
        except BaseExceptionGroup as group:
            error: BaseException = group
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            raise error from error.__cause__
        finally:
            if self._engine is engine:  # there is another one if the event loop of this one was closed
                self._engine, self._stopped = None, False

    async def _run(self, engine: Engine, *, drain: bool) -> None:
        targets = [self._publisher] if self._dead_publisher is None else [self._publisher, self._dead_publisher]
        try:
            for target in targets:
                await target.open(self._box.name)
            self._began.set()  # what follows waits for a store that is down
            await self._limits.write(engine.state, self._digest, drain=drain)
            await engine.run(drain=drain)
        finally:
            with anyio.CancelScope(shield=True):
                self._digest.flush()
                for target in targets:
                    await target.aclose()

    def _services(self) -> list[Service]:
        reap_every, sweep_every, beat_every = self._intervals
        services: list[Service] = [self._digest]
        if reap_every is not None:
            services.append(Reaper(self._box, every=min(reap_every, self._policy.lease / 2)))
        if sweep_every is not None:
            self._sweeper = Sweeper(self._box, every=sweep_every)
            services.append(self._sweeper)
        if beat_every is not None:
            self._heartbeat = Heartbeat(self._box, self.name, self.about, every=beat_every)
            services += [
                self._heartbeat,
                LossWatch(self._box, every=max(beat_every, BEAT_EVERY)),
                RateRecorder(self._box, self.tally.since_due, every=min(beat_every, BEAT_EVERY)),
            ]
        if uses_metrics():
            from redbox.relay.otel.instruments import BoxReader

            services.append(BoxReader(self))
        if self._alerts_publisher is not None:
            self._alerts = Alerts(self._box, self.name, self._alerts_publisher, self._digest, alert_age=self._alert_age)
            services.append(self._alerts)
        return services

    def _beat_soon(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.run_soon()

    def _published(self, count: int) -> None:
        if self._sweeper is not None:
            self._sweeper.published(count)

    def _died(self, claim: Claim, reason: str) -> None:
        if self._alerts is not None:
            self._alerts.marked_dead(claim, reason)

    # --- status --------------------------------------------------------------------------------------------------

    @property
    def box(self) -> Box:
        return self._box

    @property
    def target(self) -> str:
        """The target, in words without secrets."""
        return self._publisher.target

    @property
    def dead_target(self) -> str | None:
        """The dead-letter target, in words without secrets; None if there is none."""
        return None if self._dead_publisher is None else self._dead_publisher.target

    @property
    def alerts_target(self) -> str | None:
        """The target of alerts, in words without secrets; None if there is none."""
        return None if self._alerts_publisher is None else self._alerts_publisher.target

    @property
    def policy(self) -> Policy:
        """The settings, checked."""
        return self._policy

    @property
    def running(self) -> bool:
        return self._engine is not None and self._loop is not None and not self._loop.is_closed()

    @property
    def grace(self) -> float:
        """Seconds that `stop` waits for events being published."""
        return self._policy.grace

    @property
    def in_flight(self) -> int:
        """The number of claims that it holds: buffered or being published."""
        return 0 if self._engine is None else self._engine.held

    @property
    def circuit(self) -> Circuit:
        """The state of the breaker; CLOSED without one."""
        return Circuit.CLOSED if self.breaker is None else self.breaker.circuit

    def summary(self) -> Summary:
        """The outcomes so far."""
        open_because = "" if self.breaker is None or self.breaker.closed else self.breaker.reason
        return self.tally.summary(open_because)

    async def metrics_text(self) -> str:
        """The metrics of the relay and its box in Prometheus' text format; needs the extra `metrics`. For several
        relays of a process, call `redbox.relay.metrics.scrape(relays)`."""
        from redbox.relay.metrics import scrape

        return await scrape([self])

    def about(self) -> dict[str, str]:
        """The fields of the heartbeat. Ages are in ms: only the store's clock knows the time."""
        summary = self.summary()
        open_for = None if self.breaker is None else self.breaker.open_for
        outage = None if self.breaker is None else self.breaker.last_outage
        probe_in = self.breaker.wait() if self.breaker is not None and self.circuit is Circuit.OPEN else None
        return {
            "target": self._publisher.target,
            "in_flight": str(self.in_flight),
            "published": str(summary.published),
            "retried": str(summary.retried),
            "dead": str(summary.dead),
            "breaker": self.circuit.value,
            "reason": summary.open,
            "age": str(int((time.monotonic() - self._started) * 1000)),
            "breaker_age": "" if open_for is None else str(int(open_for * 1000)),
            "opened_age": "" if outage is None else str(int(outage.opened * 1000)),
            "closed_age": "" if outage is None else str(int(outage.closed * 1000)),
            "probe_in": "" if probe_in is None else str(int(probe_in * 1000)),
            "hanging": "0" if self._engine is None else str(self._engine.workers.stuck),
            "calls": "0" if self._engine is None else str(self._engine.workers.size),
            "failed": str(self.tally.failed),
            "failures_in_row": str(self.tally.failures_in_row),
            "last_error": self.tally.last_error[:LONGEST_ERROR],
            "rate": f"{self._rate.read(summary.published):.3g}",
        }


show_settings(Relay.__init__)


def _where_it_belongs(name: str, publish: Target, dead_to: Target | None) -> str:
    """A hint for an error about an unknown keyword argument; empty if there is none."""
    from difflib import get_close_matches

    if name in option_names(publish):
        return f"; it is an option of the target: Relay(..., options={{{name!r}: ...}})"
    if dead_to is not None and name in option_names(dead_to):
        return f"; it is an option of the dead-letter target: Relay(..., dead_options={{{name!r}: ...}})"
    close = get_close_matches(name, inspect.signature(Relay).parameters, 1)
    return f"; did you mean {close[0]!r}?" if close else ""
