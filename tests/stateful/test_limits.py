"""The limits of a box against a model: how many events each claim may take, in any order of claims, ends and waits.
The model gets the time of the store from the replies, so it is exact."""

from __future__ import annotations

import asyncio
import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from redbox import Box, Event, keys
from redbox.rates import UNITS, per_second
from redbox.store.scripts.replies import Packed
from redbox.testing import advance, check_invariants
from redbox.testing.conformance.operations.test_limits import most_in_windows
from redbox.testing.plugin import new_box_name

pytestmark = [pytest.mark.req("LM-1", "LM-2", "LM-4"), pytest.mark.timeout(300)]
EVENTS = 200

numbers = st.sampled_from(["1", "7", "0.5", "13.25", "100", "900"])
rates = st.one_of(st.none(), st.builds("{}/{}".format, numbers, st.sampled_from(["s", "min"])))
bursts = st.one_of(st.none(), st.integers(1, 60))
places = st.one_of(st.none(), st.integers(1, 40))
steps = st.one_of(
    st.tuples(st.just("claim"), st.integers(1, 100)),
    st.tuples(st.just("claim"), st.integers(1, 100)),
    st.tuples(st.just("end"), st.integers(1, 30)),
    st.tuples(st.just("wait"), st.integers(1, 5000)),
    st.tuples(st.just("back"), st.integers(1, 5000)),
    st.tuples(st.just("limit"), st.tuples(rates, bursts, places)),
)


def default_burst(rate: str) -> float:
    return max(1.0, per_second(rate) * 0.25)


class Bucket:
    """The bucket of max_rate, in the store's time plus what the test has added to it."""

    def __init__(self) -> None:
        self.rate: str | None = None
        self.burst: int | None = None
        self.at: int | None = None
        self.tokens = 0.0

    def limit(self, rate: str | None, burst: int | None) -> None:
        if rate is None:
            self.at = None
        self.rate, self.burst = rate, burst

    def fill(self, now: int) -> float:
        """How many tokens there are; infinitely many without a rate."""
        if self.rate is None:
            return math.inf
        per_ms = float(self.rate.partition("/")[0]) / (UNITS[self.rate.partition("/")[2]] * 1000)
        tokens = 1.0 if self.at is None else self.tokens + per_ms * max(0, now - self.at)
        return min(tokens, self.burst or default_burst(self.rate))

    def spend(self, now: int, count: int) -> None:
        if self.rate is None:
            return
        left = self.fill(now) - count
        if count or self.at is None or self.at > now:
            self.at, self.tokens = now, math.floor(left * 1e6) / 1e6


async def play(url: str, script: list[tuple[str, Any]]) -> None:
    async with Box.open(url, name=new_box_name()) as box:
        await box.put_many([Event("n") for _ in range(EVENTS)])
        bucket, most, left, moved, back = Bucket(), None, EVENTS, 0, False
        held: list[Packed] = []
        moments: dict[tuple[str, int], list[datetime]] = {}
        for what, value in script:
            in_flight = sum(map(len, held))
            if what == "limit":
                rate, burst, most = value
                bucket.limit(rate, burst)
                await box.operate.configure(max_rate=rate, max_burst=burst, max_in_flight=most, who="ada", why="test")
            elif what == "claim":
                reply = await box.claim_packed("relay-1", limit=value, lease=36000, attempts=None, holding=0)
                now = reply.claimed_ms + moved
                room = math.inf if most is None else max(0, most - in_flight)
                allowed = min(math.floor(bucket.fill(now)) if bucket.rate else math.inf, room)
                expected = min(value, allowed, left)
                assert len(reply) == expected, (what, value, bucket.fill(now), room, left)
                if allowed < 1 or expected:
                    bucket.spend(now, int(expected))
                left -= len(reply)
                assert reply.full == (most is not None and in_flight + len(reply) >= most and left > 0)
                if len(reply):
                    held.append(reply)
                if bucket.rate is not None:
                    named = bucket.rate, bucket.burst or 0
                    moments.setdefault(named, []).extend([datetime.fromtimestamp(now / 1000, UTC)] * len(reply))
            elif what == "end" and held:
                claims = await box.unpack(held.pop(0))
                await box.ack(claims[:value])
                if len(claims) > value:
                    await box.release(claims[value:])
                    left += len(claims) - value
            elif what in ("wait", "back"):
                by = value if what == "wait" else -value
                moved, back = moved + by, back or by < 0
                await advance(box, milliseconds=by)
                if by < 0:  # the events stay due, or they would hide what the bucket does
                    (ids,) = await box._store.exchange([("ZRANGE", keys.pending(box.name), 0, -1)])
                    if ids:
                        await box._store.exchange([("ZADD", keys.pending(box.name), 10**12, each) for each in ids])
        changes = sum(what == "limit" for what, _ in script)
        for (rate, burst), times in moments.items():
            if not back and changes == 1:
                assert most_in_windows(times, per_second(rate)) <= (burst or default_burst(rate)) + 1e-3
        if not back:
            assert await check_invariants(box) == []


@settings(max_examples=15, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(first=st.tuples(rates, bursts, places), script=st.lists(steps, min_size=3, max_size=25))
def test_each_claim_takes_what_the_model_allows(first: tuple[Any, ...], script: list[tuple[str, Any]]):
    asyncio.run(play("memory:limits", [("limit", first), *script]))
