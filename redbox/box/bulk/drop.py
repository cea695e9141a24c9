"""Export and drop: events as lines of NDJSON, and the removal of DEAD and PUBLISHED events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

import msgspec

from redbox.arguments import whole_number
from redbox.box.bulk.choice import Progress, check_bulk, claims_of
from redbox.box.bulk.export_file import decode_line
from redbox.box.bulk.selection import Selection
from redbox.box.inspect import GET_COUNT, Budget, at_most, records, up_to_now
from redbox.box.operations_log import action_token
from redbox.box.reports import MOST_REFUSED, Dropped
from redbox.box.texts.record_json import line_of
from redbox.errors import UsageError
from redbox.events import Outcome, State, check_key
from redbox.store.scripts.items import SeenClaim
from redbox.store.scripts.steps import batches
from redbox.store.store import Store


async def export(store: Store, events: list[str] | Selection) -> AsyncIterator[bytes]:
    """The events, each as a line that `redbox put --many` accepts, or refuses if the event cannot be read."""
    if isinstance(events, Selection):
        if events.state in (State.PUBLISHED, State.DEAD):  # whose indexes grow at the end
            events = await up_to_now(store, events)
        async for found in records(store, events):
            for record in found:
                yield line_of(record)
        return
    for batch in batches(dict.fromkeys(events), GET_COUNT):
        for known in await store.get(batch):
            if known is not None:
                yield line_of(known)


class Drop(msgspec.Struct, frozen=True, kw_only=True):
    """How events are dropped; `limit` is the most events that are, in the order of the listing."""

    dry_run: bool
    who: str
    why: str
    progress: Progress | None
    limit: int | None = None
    budget: Budget | None = None

    def __post_init__(self) -> None:
        if self.limit is not None:
            whole_number("limit", self.limit)
        check_bulk(self.dry_run, self.progress)
        if not self.who:
            raise UsageError("who: say who does this; every action of an operator is recorded")
        check_key("who", self.who)

    async def run(self, store: Store, events: list[SeenClaim] | Selection) -> Dropped:
        """Drops events by id, or those that a filter selects, if they do not change meanwhile."""
        known = events if isinstance(events, Selection) else list(dict.fromkeys(events))
        found = at_most(self.limit, claims_of(store, known, self.budget))
        return await _Steps(self, store, await action_token(store)).run(found)

    async def run_exported(self, store: Store, lines: Any) -> Dropped:
        """Drops the events of exported lines, if they have not changed since then.

        An event that could not be read is left: its line is no copy of it. All lines are read before the first event is
        dropped, so that a bad line drops nothing.
        """
        if isinstance(lines, str | bytes) or not isinstance(lines, Iterable):
            raise UsageError("exported: give the lines of an export, such as a file that was opened in binary mode")
        steps = _Steps(self, store, await action_token(store))
        return await steps.run(claims_of(store, steps.read_exported(lines)))


class _Steps:
    """One drop: its steps share a token, so that they are one entry of the log."""

    def __init__(self, drop: Drop, store: Store, token: str) -> None:
        self._drop = drop
        self._store = store
        self._token = token
        self._report = Dropped(dry_run=drop.dry_run)

    async def run(self, found: AsyncIterator[list[SeenClaim]]) -> Dropped:
        drop, report = self._drop, self._report
        async for items in found:
            report.matched += len(items)
            if not drop.dry_run:
                words = await self._store.drop(items, who=drop.who, why=drop.why, token=self._token)
                for item, word in zip(items, words, strict=True):
                    outcome = Outcome(word.decode())
                    report.dropped += outcome is Outcome.OK
                    if outcome is not Outcome.OK:
                        self._refuse(item.event_id, outcome.reason)
            if drop.progress is not None:
                drop.progress(report.matched)
        return report

    def read_exported(self, lines: Iterable[bytes]) -> list[SeenClaim]:
        """The events of exported lines; those that could not be read are refused."""
        items: list[SeenClaim] = []
        for number, text in enumerate(lines, 1):
            try:
                line = decode_line(text)
            except (msgspec.DecodeError, TypeError, UnicodeError) as error:
                reason = f"line {number} is not that of an exported event ({error}); nothing was dropped"
                raise UsageError(reason) from None
            if line.problem is None:
                items.append(SeenClaim(line.event_id, line.number))
            else:
                self._report.matched += 1
                self._refuse(line.event_id, line.problem)
        return items

    def _refuse(self, event_id: str, reason: str) -> None:
        self._report.refused_count += 1
        if len(self._report.refused) < MOST_REFUSED:
            self._report.refused.append((event_id, reason))
