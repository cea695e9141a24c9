"""RO-2: the pace of a replay."""

from __future__ import annotations

from itertools import pairwise

import pytest

from redbox.box.bulk.pace import Pace
from redbox.settings import BATCH_COUNT

pytestmark = [pytest.mark.req("RO-2"), pytest.mark.anyio]


def test_without_a_rate_there_is_no_limit():
    pace = Pace(None)
    assert (pace.moment(10**9), pace.size(0)) == (0.0, BATCH_COUNT)


def test_a_rate_spreads_events_evenly():
    pace = Pace(50.0)
    assert [pace.moment(done) for done in (0, 50, 500)] == [0.0, 1.0, 10.0]
    assert (pace.size(0), Pace(0.5).size(7), Pace(1e6).size(0)) == (10, 1, BATCH_COUNT)


def test_a_ramp_grows_from_a_trickle_to_the_full_rate():
    pace = Pace(50.0, ramp=300.0)
    assert pace.moment(0) == 0.0
    assert pace.moment(1) == pytest.approx(3.46, abs=0.01)
    assert pace.moment(7500) == pytest.approx(300.0)  # half of what the full rate would have made
    assert pace.moment(7550) == pytest.approx(301.0)
    assert [pace.size(done) for done in (0, 7500 // 4, 7500, 10**6)] == [1, 5, 10, 10]
    moments = [pace.moment(done) for done in range(9000)]
    gaps = [later - earlier for earlier, later in pairwise(moments)]
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(gaps))


async def test_waits_count_from_the_beginning(monkeypatch: pytest.MonkeyPatch):
    now, slept = [100.0], list[float]()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("redbox.box.bulk.pace.time.monotonic", lambda: now[0])
    monkeypatch.setattr("redbox.box.bulk.pace.asyncio.sleep", sleep)
    pace = Pace(10.0)
    now[0] = 105.0  # a canary was watched
    pace.begin()
    await pace.wait(20)
    now[0] = 108.0
    await pace.wait(20)
    assert slept == [2.0, 0.0]
