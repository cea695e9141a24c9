"""Runs the relays of one process, from the first call of the store to the summary."""

from __future__ import annotations

import logging
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio
import msgspec

from redbox.cli import process
from redbox.cli.printing import logs
from redbox.cli.relay.leftovers import Leftovers, leftovers
from redbox.durations import format_duration
from redbox.errors import BoxPaused, StoreError, StoreUnavailable
from redbox.store.scripts.registry import load_all

if TYPE_CHECKING:
    from redbox.relay import Relay, Summary

logger = logging.getLogger("redbox.cli")

LAST_SECONDS: Final = 9.0  # after the grace time, to settle and release claims
PROGRESS_SECONDS: Final = 10.0
PROGRESS_SECONDS_WITHOUT_TERMINAL: Final = 60.0
OUTCOMES: Final = {
    "published": "published",
    "retried": "retried",
    "dead": "dead",
    "released": "returned untried",
    "fenced": "lost to another relay",
    "unsettled": "not settled in time",
}


class Watch(NamedTuple):
    """The address of metrics and health."""

    host: str
    port: int


class Ended(NamedTuple):
    """A relay that has ended. `problem`: why it did not drain the box, if it did not; `left`: the events that `--once`
    left there."""

    relay: Relay
    summary: Summary
    problem: str
    left: Leftovers | None = None


class RelayRun:
    """Runs relays until a signal or, with `once`, until nothing is available. `policies`: one text per relay, for the
    log. `url_sources`: where the URL of each one's store was given, for errors; None for the command line.
    `start_beside` starts what runs beside them, such as an HTTP service, and has it end with the stack."""

    def __init__(
        self,
        relays: Sequence[Relay],
        policies: Sequence[str],
        *,
        once: bool = False,
        watch: Watch | None = None,
        url_sources: Sequence[str] | None = None,
        start_beside: Callable[[AsyncExitStack], Awaitable[None]] | None = None,
    ) -> None:
        self._relays = relays
        self._policies = policies
        self._url_sources = {} if url_sources is None else dict(zip(relays, url_sources, strict=True))
        self._once = once
        self._watch = watch
        self._start_beside = start_beside
        self._stopping = False
        self._signalled = anyio.Event()
        self._starting: anyio.CancelScope | None = None
        self._ended: dict[Relay, Ended] = {}
        self._began = time.monotonic()

    async def run(self) -> list[Ended]:
        """Returns the end of each relay. If one fails, all are ended and its error is raised."""
        load_all()
        try:
            with process.on_signal(self._stop, self._deadline()):
                async with AsyncExitStack() as stack:
                    with anyio.CancelScope() as self._starting:
                        await self._start(stack)
                    if not self._stopping:
                        process.freeze_objects()
                        await self._run()
        except BaseExceptionGroup as group:
            raise _cause(group) from group
        return [self._ended.get(relay) or Ended(relay, relay.summary(), "") for relay in self._relays]

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def _stop(self, which: signal.Signals) -> None:
        work = "events being published" if self._relays else "requests being answered"
        logger.info("%s: finishing the %s; a second signal exits at once", which.name, work)
        self._stopping = True
        if self._starting is not None:
            self._starting.cancel()
        for relay in self._relays:
            relay.stop()
        self._signalled.set()

    def _deadline(self) -> process.Deadline:
        grace = max((relay.grace for relay in self._relays), default=0.0)
        late = (
            f"a publisher did not return within {grace:g} s, and ignored its cancellation or blocked the event loop; "
            "its event returns to PENDING when its lease ends"
            if self._relays
            else f"the service did not end within {LAST_SECONDS:g} s; requests without an answer may be repeated"
        )
        return process.Deadline(grace + LAST_SECONDS, f"error: {late}")

    async def _start(self, stack: AsyncExitStack) -> None:
        """Checks that the store answers and the port is free, before anything is claimed. Logs what is wrong with the
        store or the box."""
        from redbox.audit import quick_errors

        for relay in self._relays:
            box = await stack.enter_async_context(relay.box)
            with self._naming_url(relay):
                await box.settings()
            if self._start_beside is None and not await box.exists():
                logger.warning("there is no box %r on %s yet: nothing was put into it", box.name, box.where)
            for finding in await quick_errors(box):
                logger.error("%s: %s; %s", finding.sentence, finding.meaning, finding.remedy)
        if self._watch is not None:
            from redbox.service.monitor import Monitor

            monitor = await stack.enter_async_context(Monitor(self._relays, self._watch.port, self._watch.host))
            logger.info("metrics on %s/metrics, health on %s/livez and /readyz", monitor.url, monitor.url)
        if self._start_beside is not None:
            await self._start_beside(stack)

    async def _run(self) -> None:
        async with anyio.create_task_group() as beside:
            beside.start_soon(self._progress)
            async with anyio.create_task_group() as group:
                for relay, policy in zip(self._relays, self._policies, strict=True):
                    group.start_soon(self._one, relay, policy)
                if not self._relays:
                    await self._signalled.wait()
            beside.cancel_scope.cancel()

    async def _one(self, relay: Relay, policy: str) -> None:
        logs.about.set({"box": relay.box.name, "relay": relay.name})
        logger.info("relay %s: from box %s on %s to %s", relay.name, relay.box.name, relay.box.where, relay.target)
        logger.info("policy: %s", policy)
        problem = ""
        try:
            with self._naming_url(relay):
                await (relay.drain() if self._once else relay.run())
        except* BoxPaused as paused:  # only with --once; the other relays continue
            problem = str(_cause(paused))
        summary = relay.summary()
        if self._once and not self._stopping and summary.open:
            problem = f"the breaker is open: {summary.open}"
        elif self._once and not self._stopping and summary.stuck:
            problem = summary.stuck
        undelivered = summary.undelivered if self._once and not self._stopping else ""
        left = await _leftovers(relay) if self._once else None
        self._ended[relay] = Ended(relay, summary, problem or undelivered, left)
        took = format_duration(self.seconds)
        logger.info("ended after %s: %s", took, in_counts(summary), extra=counts(summary))
        if left is not None and left.count:
            logger.info(left.in_words(problem))
        if problem or undelivered:
            logger.error("not drained: %s", problem or undelivered)

    @contextmanager
    def _naming_url(self, relay: Relay) -> Iterator[None]:
        """Lets an error about the store say where its URL was given."""
        try:
            yield
        except StoreUnavailable as error:
            error.url_source = self._url_sources.get(relay, error.url_source)
            raise

    # --- progress ------------------------------------------------------------------------------------------------

    async def _progress(self) -> None:
        """Logs the outcomes of each interval."""
        every = PROGRESS_SECONDS if sys.stderr.isatty() else PROGRESS_SECONDS_WITHOUT_TERMINAL
        before = {relay: counts(relay.summary()) for relay in self._relays}
        while True:
            await anyio.sleep(every)
            for relay in self._relays:
                now = counts(relay.summary())
                if now != before[relay]:
                    self._log_progress(relay, {name: now[name] - before[relay][name] for name in now}, every)
                    before[relay] = now

    def _log_progress(self, relay: Relay, done: dict[str, int], every: float) -> None:
        token = logs.about.set({"box": relay.box.name, "relay": relay.name})
        text = f"in the last {every:g} s: {in_counts(done)}; held {relay.in_flight:,}"
        logger.info(text, extra={**done, "in_flight": relay.in_flight})
        logs.about.reset(token)


def counts(summary: Summary) -> dict[str, int]:
    """The counts of a summary."""
    return {name: getattr(summary, name) for name in ("claimed", *OUTCOMES)}


def in_counts(summary: Summary | dict[str, int]) -> str:
    """`3 published, 1 dead`."""
    numbers = summary if isinstance(summary, dict) else counts(summary)
    return ", ".join(
        f"{numbers[name]:,} {text}" for name, text in OUTCOMES.items() if numbers[name] or name == "published"
    )


def as_json(ended: Sequence[Ended], seconds: float) -> dict[str, Any]:
    """The summary as one document: the totals, then each relay."""
    relays = [
        {
            "box": each.relay.box.name,
            "relay": each.relay.name,
            "target": each.relay.target,
            **counts(each.summary),
            "problem": each.problem or None,
            **({} if each.left is None else {"left": msgspec.to_builtins(each.left)}),
        }
        for each in ended
    ]
    total = {name: sum(getattr(each.summary, name) for each in ended) for name in ("claimed", *OUTCOMES)}
    return {**total, "seconds": round(seconds, 3), "relays": relays}


async def _leftovers(relay: Relay) -> Leftovers | None:
    try:
        return leftovers(await relay.box.stats())
    except StoreError as error:
        logger.warning("the events left in the box could not be counted: %s", error)
        return None


def _cause(group: BaseException) -> BaseException:
    """The first error of a group."""
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group
