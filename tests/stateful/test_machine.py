"""A Hypothesis state machine: several relays, operators and producers on one box, compared with the model after
every step, together with the invariant that each id is in exactly one index and that index agrees with its state.

`make campaign` runs it REDBOX_EXAMPLES times on each store (25 by default), each time for REDBOX_STEPS steps.
"""

from __future__ import annotations

import asyncio
import math
import os

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from redbox import BatchRefused, Box, BoxPaused, Conflict, Event, Outcome
from redbox.events import Claim
from redbox.testing import advance, check_invariants
from redbox.testing.conformance.fixtures import remove
from redbox.testing.plugin import new_box_name
from tests.stateful.model import CLAIMED, DEAD, PENDING, PUBLISHED, Handed, Item, Model

# All combinations differ by at least 30 s, so that the duration of a run never matters.
LEASE, DELAY, STEP = 40.0, 100.0, 70.0
FEW_EXAMPLES = 6
EXAMPLES = int(os.environ.get("REDBOX_EXAMPLES", "25"))
STEPS = int(os.environ.get("REDBOX_STEPS", "40"))

delays = st.sampled_from([0.0, DELAY])
relays = st.sampled_from(["relay-1", "relay-2"])


class BoxMachine(RuleBasedStateMachine):
    url = "memory:"

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.box = Box.open(self.url, name=new_box_name())
        self.model = Model()
        self.claims: list[tuple[Handed, Claim]] = []
        self.events: dict[str, Event] = {}
        self.run = self.runner.run

    def teardown(self) -> None:
        self.run(remove(self.box))
        self.runner.close()

    # --- choosing ----------------------------------------------------------------------------------------------

    def some_item(self, data: st.DataObject) -> Item:
        return self.model.items[data.draw(st.sampled_from(sorted(self.model.items)), label="event")]

    def some_claim(self, data: st.DataObject) -> tuple[Handed, Claim]:
        """Returns any claim that was ever made, most often a recent one."""
        position = data.draw(st.integers(1, min(len(self.claims), 12)), label="claim")
        return self.claims[-position]

    # --- producers ---------------------------------------------------------------------------------------------

    @initialize(policy=st.sampled_from(["skip", "block"]))
    def begin(self, policy: str) -> None:
        self.run(self.box.operate.configure(dead_head=policy, who="test", why="begin"))
        self.model.set_policy(policy)

    @rule(
        ordering_key=st.sampled_from([None, None, "a", "b"]),
        unique_key=st.sampled_from([None, None, "u"]),
        scope=st.sampled_from(["ALL_LIVE", "UNTOUCHED"]),
        delay=delays,
    )
    def put(self, ordering_key: str | None, unique_key: str | None, scope: str, delay: float) -> None:
        event = Event("n", ordering_key=ordering_key, unique_key=unique_key, unique_scope=scope, delay=delay)
        holders = self.model.holders(unique_key, scope) if unique_key else set()
        if holders:
            with pytest.raises(Conflict) as conflict:
                self.run(self.box.put(event))
            assert conflict.value.holder in holders
            return
        assert self.run(self.box.put(event)).created
        self.events[event.event_id] = event
        self.model.put(Item(event.event_id, ordering_key, unique_key, scope, self.model.now + delay))

    @rule(
        ordering_key=st.sampled_from([None, None, "a", "b"]),
        scope=st.sampled_from(["ALL_LIVE", "UNTOUCHED"]),
        delays=st.lists(delays, min_size=1, max_size=3),
    )
    def replace(self, ordering_key: str | None, scope: str, delays: list[float]) -> None:
        """Events with one key in one call: each replaces the one before."""
        events = [Event("n", ordering_key=ordering_key, unique_key="u", unique_scope=scope, delay=d) for d in delays]
        holders = self.model.holders("u", scope)
        replaced = next(iter(holders)) if len(holders) == 1 else None
        if holders and (replaced is None or self.model.items[replaced].claimed_once):
            with pytest.raises(BatchRefused) as refusal:
                self.run(self.box.put_many(events, on_conflict="replace"))
            assert isinstance(refusal.value.__cause__, Conflict)
            assert refusal.value.__cause__.holder in holders
            return
        receipts = self.run(self.box.put_many(events, on_conflict="replace"))
        assert [each.replaced for each in receipts] == [replaced, *(each.event_id for each in events[:-1])]
        if replaced is not None:
            self.model.drop(self.model.items[replaced])
            del self.events[replaced]
        self.events[events[-1].event_id] = events[-1]
        self.model.put(Item(events[-1].event_id, ordering_key, "u", scope, self.model.now + delays[-1]))

    @precondition(lambda self: self.model.items)
    @rule(data=st.data())
    def put_again(self, data: st.DataObject) -> None:
        assert not self.run(self.box.put(self.events[self.some_item(data).id])).created

    # --- relays ------------------------------------------------------------------------------------------------

    @rule(relay=relays, limit=st.integers(1, 4), attempts=st.sampled_from([0, 2]), holding=st.sampled_from([0, 1]))
    def claim(self, relay: str, limit: int, attempts: int, holding: int) -> None:
        async def take() -> list[Claim]:
            return await self.box.claim(relay, limit=limit, lease=LEASE, attempts=attempts or None, holding=holding)

        if self.model.paused:
            with pytest.raises(BoxPaused):
                self.run(take())
            return
        self.model.end_key_pauses()
        expected = self.run(self._expected(limit))
        claims = self.run(take())
        assert [claim.event_id for claim in claims] == expected
        handed = self.model.claim(expected, relay, LEASE, attempts, holding)
        assert [(c.event_id, c.number, c.claimed_by) for c in claims] == [(h.id, h.number, h.relay) for h in handed]
        for claim in claims:
            item = self.model.items[claim.event_id]
            assert (claim.attempts, claim.excused, claim.exhausted) == (item.attempts, item.excused, item.exhausted)
            assert claim.suspect == item.alone
        self.claims += zip(handed, claims, strict=True)

    async def _expected(self, limit: int) -> list[str]:
        """Returns the ids that a claim must return. The store's milliseconds break ties in the time of the model."""

        async def by_time(items: list[Item]) -> list[tuple[object, str]]:
            found = [await self.box.get(item.id) for item in items]
            return sorted((record.available_at, record.event_id) for record in found if record)

        ordinary = await by_time(self.model.due(suspects=False))
        suspects = await by_time(self.model.due(suspects=True))
        if suspects and not self.model.suspect_out() and (not ordinary or suspects[0][0] <= ordinary[0][0]):  # type: ignore[operator]
            return [suspects[0][1]]
        return [event_id for _, event_id in ordinary[:limit]]

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        handed, claim = self.some_claim(data)
        item = self.model.held(handed)
        assert self.run(self.box.ack(claim)) == [item is not None]
        if item:
            self.model.ack(item)

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), delay=delays)
    def retry(self, data: st.DataObject, delay: float) -> None:
        handed, claim = self.some_claim(data)
        item = self.model.held(handed)
        assert self.run(self.box.retry(claim, error="failed", delay=delay)) == [item is not None]
        self.run(advance(self.box, milliseconds=1))  # without a delay the event is available a millisecond later
        if item:
            self.model.retry(item, delay, "failed")

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def kill(self, data: st.DataObject) -> None:
        handed, claim = self.some_claim(data)
        item = self.model.held(handed)
        assert self.run(self.box.kill(claim, reason="rejected")) == [item is not None]
        if item:
            self.model.kill(item, "rejected")

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), delay=st.sampled_from([None, DELAY]))
    def release(self, data: st.DataObject, delay: float | None) -> None:
        handed, claim = self.some_claim(data)
        item = self.model.held(handed)
        assert self.run(self.box.release(claim, delay=delay)) == [item is not None]
        if item:
            self.model.release(item, delay)

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        handed, claim = self.some_claim(data)
        item = self.model.held(handed)
        assert self.run(self.box.renew(claim, lease=LEASE)) == [item is not None]
        if item:
            item.lease_end = self.model.now + LEASE

    @rule(limit=st.integers(1, 5))
    def reap(self, limit: int) -> None:
        expired = {item.id for item in self.model.expired()}
        reaped = self.run(self.box.reap(limit=limit))
        self.model.end_key_pauses()
        assert set(reaped) <= expired
        assert len(reaped) == min(limit, len(expired))
        for event_id in reaped:
            self.model.reap(self.model.items[event_id])

    # --- time --------------------------------------------------------------------------------------------------

    @rule()
    def time_passes(self) -> None:
        self.run(advance(self.box, seconds=STEP))
        self.model.now += STEP

    # --- operators ---------------------------------------------------------------------------------------------

    @precondition(lambda self: self.model.items)
    @rule(data=st.data(), delay=delays, reset=st.booleans(), force=st.booleans())
    def replay(self, data: st.DataObject, delay: float, reset: bool, force: bool) -> None:
        item = self.some_item(data)
        report = self.run(self.box.replay([item.id], delay=delay, reset=reset, force=force))
        holders = self.model.holders(item.unique_key, item.scope) if item.unique_key and not force else set()
        if item.live:
            assert report.refused == [(item.id, Outcome.NOTTERMINAL, item.state)]
        elif holders:
            ((_, outcome, holder),) = report.refused
            assert outcome is Outcome.CONFLICT
            assert holder in holders
        else:
            assert report.replayed == 1
            self.model.replay(item, delay, reset=reset)

    @precondition(lambda self: self.model.items)
    @rule(data=st.data())
    def operator_kills(self, data: st.DataObject) -> None:
        item = self.some_item(data)
        outcome = self.run(self.box.operate.kill([item.id], who="op", why="bad"))
        assert outcome == [Outcome.OK if item.live else Outcome.NOTLIVE]
        if item.live:
            self.model.kill(item, "killed by op: bad", operator=True)

    @precondition(lambda self: self.model.items)
    @rule(data=st.data())
    def operator_releases(self, data: st.DataObject) -> None:
        item = self.some_item(data)
        outcome = self.run(self.box.operate.release([item.id], who="op", why="stuck"))
        assert outcome == [Outcome.OK if item.state == CLAIMED else Outcome.NOTCLAIMED]
        if item.state == CLAIMED:
            self.model.release(item, None)

    @precondition(lambda self: self.model.items)
    @rule(data=st.data(), delay=delays)
    def operator_reschedules(self, data: st.DataObject, delay: float) -> None:
        item = self.some_item(data)
        outcome = self.run(self.box.operate.reschedule([item.id], delay=delay, who="op", why="later"))
        assert outcome == [Outcome.OK if item.state == PENDING else Outcome.NOTPENDING]
        if item.state == PENDING:
            item.available = self.model.now + delay

    @precondition(lambda self: self.model.items)
    @rule(data=st.data())
    def operator_drops(self, data: st.DataObject) -> None:
        item = self.some_item(data)
        outcome = self.run(self.box.operate.drop([item.id], who="op", why="bad"))
        assert outcome == [Outcome.NOTTERMINAL if item.live else Outcome.OK]
        if not item.live:
            self.model.drop(item)

    @rule(policy=st.sampled_from(["skip", "block"]))
    def operator_sets_the_policy(self, policy: str) -> None:
        self.run(self.box.operate.configure(dead_head=policy, who="op", why="test"))
        self.model.set_policy(policy)

    @rule(duration=st.sampled_from([None, DELAY]))
    def operator_pauses(self, duration: float | None) -> None:
        self.run(self.box.operate.pause(duration=duration, who="op", why="test"))
        self.model.paused_until = self.model.now + (duration or math.inf)

    @rule()
    def operator_resumes(self) -> None:
        assert self.run(self.box.operate.resume(who="op", why="test")) == self.model.paused
        self.model.paused_until = 0

    @rule(key=st.sampled_from(["a", "b"]), duration=st.sampled_from([None, DELAY]))
    def operator_pauses_a_key(self, key: str, duration: float | None) -> None:
        self.run(self.box.operate.pause(key=key, duration=duration, who="op", why="test"))
        self.model.key_pauses[key] = self.model.now + (duration or math.inf)

    @rule(key=st.sampled_from(["a", "b"]))
    def operator_resumes_a_key(self, key: str) -> None:
        was_paused = self.model.key_pauses.pop(key, 0) > self.model.now
        assert self.run(self.box.operate.resume(key=key, who="op", why="test")) == was_paused

    @rule()
    def sweep(self) -> None:
        going = self.model.sweepable()
        report = self.run(self.box.sweep(keep_published=0, keep_dead=0))
        assert report.published == sum(item.state == PUBLISHED for item in going)
        assert report.dead == sum(item.state == DEAD for item in going)
        for item in going:
            self.model.drop(item)

    # --- after every step --------------------------------------------------------------------------------------

    @invariant()
    def the_box_is_sound(self) -> None:
        assert self.run(check_invariants(self.box)) == []

    @invariant()
    def the_box_agrees_with_the_model(self) -> None:
        async def read() -> dict[str, tuple[object, ...]]:
            return {
                r.event_id: (
                    r.state, r.attempts, r.excused, r.expiries, r.number, r.claimed_by, r.last_error,
                    r.waiting, r.suspect,
                )
                async for r in self.box.list()
            }  # fmt: skip

        model = self.model
        expected = {
            i.id: (
                i.state, i.attempts, i.excused, i.expiries, i.number, i.claimed_by, i.last_error,
                model.waiting(i), i.suspect and not model.waiting(i),
            )
            for i in model.items.values()
        }  # fmt: skip
        assert self.run(read()) == expected
        stats = self.run(self.box.stats())
        assert stats.blocked == len(model.blocked())
        assert stats.waiting == sum(model.waiting(item) for item in model.items.values())
        assert stats.overdue == len(model.expired())
        assert stats.phases == self._phases()
        assert stats.paused == model.paused
        assert stats.paused_keys == sum(ends > model.now for ends in model.key_pauses.values())

    def _phases(self) -> dict[str, int]:
        ready = [item for item in self.model.items.values() if item.state == PENDING]
        later = [item for item in ready if item.available > self.model.now]
        states = [item.state for item in self.model.items.values()]
        return {
            "SCHEDULED": sum(item.tried == 0 for item in later),
            "RETRY_SCHEDULED": sum(item.tried > 0 for item in later),
            "AVAILABLE": len(ready) - len(later),
            "IN_FLIGHT": states.count(CLAIMED),
            "DEAD": states.count(DEAD),
            "COMPLETED": states.count(PUBLISHED),
        }


@pytest.mark.req("PL-1", "PL-4", "PL-6", "SC-4", "OP-1", "OP-2", "OP-4", "MQ-2", "MQ-3", "LM-3", "EM-10")
@pytest.mark.parametrize("store", ["memory", "embedded"])
@pytest.mark.timeout(0)
def test_the_box_agrees_with_the_model(store: str, store_url: str) -> None:
    run_machine(store, store_url, examples=FEW_EXAMPLES)


@pytest.mark.campaign
def test_the_box_agrees_with_the_model_in_long_runs(store: str, store_url: str) -> None:
    run_machine(store, store_url, examples=EXAMPLES)


def run_machine(store: str, store_url: str, *, examples: int) -> None:
    machine = type("BoxMachineOn" + store.title(), (BoxMachine,), {"url": store_url})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize="REDBOX_EXAMPLES" not in os.environ,
            suppress_health_check=list(HealthCheck),
        ),
    )
