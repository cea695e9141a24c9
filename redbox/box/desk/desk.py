"""What the screens of an operator show beside the stats: errors, blocked keys, suggestions and rates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from redbox.arguments import whole_number
from redbox.box.desk.blocked_keys import BlockedKey, blocked_keys
from redbox.box.desk.incidents import (
    SAMPLE,
    Counted,
    GroupCensus,
    Incident,
    SampledGroups,
    incident,
    sampled_groups,
    selected_groups,
)
from redbox.box.desk.rates_history import RatesHistory, rates_history, record_rates
from redbox.box.desk.recent_errors import RecentError, recent_errors
from redbox.box.desk.suggestions import suggest
from redbox.events import State
from redbox.settings import BATCH_COUNT
from redbox.store.store import Store


class Desk:
    """Readings of one box for `redbox top` and the dashboard, each bounded in work. It is the `desk` of a Box."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._was_missing = False  # when its rates were last recorded

    async def failing(
        self,
        *,
        states: Iterable[State] = (State.DEAD, State.PENDING),
        sample: int = SAMPLE,
        counted: Counted | None = None,
        **filters: Any,
    ) -> SampledGroups:
        """The error groups of the newest DEAD events and of PENDING ones that failed, at most `sample` of each.

        If there are more, counts are estimated, or taken from `counted`, a full count by a `census`. With filters of
        `list`, they are the counts of the newest `sample` events of each state.
        """
        self._store.ensure_open()
        if filters:
            return await selected_groups(self._store, states, sample, filters)
        return await sampled_groups(self._store, states, sample, counted)

    async def incident(
        self, *, group: str, state: State | None = None, sample: int = SAMPLE, counted: Counted | None = None
    ) -> Incident | None:
        """One error group, by its id or its fingerprint: what happened when, the ordering keys that it blocks, its last
        event, and the last one of its type that was delivered. None if no such error is among the newest `sample`
        failed events, or in `counted`."""
        self._store.ensure_open()
        return await incident(self._store, group, state=state, sample=sample, counted=counted)

    def census(self) -> GroupCensus:
        """Counts all DEAD events by their errors, in the background and slowly."""
        return GroupCensus(self._store)

    async def recent_errors(self, limit: int = 200) -> tuple[RecentError, ...]:
        """The errors of the newest `limit` DEAD events, at most 1,000, the most frequent first."""
        self._store.ensure_open()
        return tuple(await recent_errors(self._store, whole_number("limit", limit, 1, BATCH_COUNT)))

    async def blocked_keys(self, limit: int = 100) -> tuple[BlockedKey, ...]:
        """The ordering keys whose line a dead event blocks, at most 1,000, the longest blocked first."""
        self._store.ensure_open()
        return tuple(await blocked_keys(self._store, whole_number("limit", limit, 1, BATCH_COUNT)))

    async def suggest(self, field: str, prefix: str = "", *, limit: int = 20) -> tuple[str, ...]:
        """Values that complete what a person types: of `type`, `key`, `error` or `relay`, the most frequent first.

        Those of a sample of events, the oldest and the newest of each state, so a rare value may be missing.
        """
        self._store.ensure_open()
        return tuple(await suggest(self._store, field, prefix, whole_number("limit", limit, 1, BATCH_COUNT)))

    async def check_puts(self) -> None:
        """Raises the error that every put would raise now: the store does not answer, is a read-only replica, or is out
        of memory or disk. Writes nothing; a full or paused box is no error."""
        self._store.ensure_open()
        await self._store.put("check", ())

    async def rates_history(self, *, window: str = "1h") -> RatesHistory:
        """Events per second and latencies of the last hour, "1h", or day, "24h".

        Relays and the HTTP service record them, at least every 10 seconds, so there is none from before they ran.
        """
        self._store.ensure_open()
        return await rates_history(self._store, window)

    async def record_rates(self, *, latencies: Mapping[float, int] | None = None) -> bool:
        """Samples the totals of the box for `rates_history`; False for a box that does not exist.

        `latencies` are those of events published since the last call: how many are in each bucket, by the bucket's
        upper bound in ms.
        """
        self._store.ensure_open()
        recorded = await record_rates(self._store, {} if latencies is None else latencies, new=self._was_missing)
        self._was_missing = not recorded
        return recorded
