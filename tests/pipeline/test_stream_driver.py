"""What the process that drives a stream does by itself, without Spark."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from redbox import Event, Phase, keys
from redbox.errors import Refused, StoreError, StreamTaken, UsageError
from redbox.pipeline.source import stream_driver
from redbox.pipeline.source.drain import DrainReader
from redbox.pipeline.source.options import Address, DrainOptions, drain_options
from redbox.pipeline.source.schema import SCHEMA
from redbox.pipeline.source.stream_driver import StreamDriver
from redbox.testing import check_invariants
from tests import servers

from .conftest import Played

pytestmark = [pytest.mark.req("SP-3"), pytest.mark.campaign]


@contextmanager
def driven(played: Played, **options: Any) -> Iterator[StreamDriver]:
    driver = StreamDriver(DrainOptions(at=Address(played.url, played.name), stream="lake", **options))
    with closing(driver):
        yield driver


def fill(played: Played, count: int) -> None:
    played.run(played.box.put_many([Event("n", event_id=f"e{number:02}") for number in range(count)]))


def claimed(played: Played) -> int:
    return int(played.run(played.box.stats()).phases[Phase.IN_FLIGHT])


def members(played: Played, batch: int) -> list[tuple[str, int]]:
    return played.run(played.box._store.members("lake", batch, 0, -1))


def holds(condition: Callable[[], bool]) -> None:
    servers.poll(condition, "it did not come so far", 10)


def test_leases_are_renewed_while_nothing_is_asked_for(redis_played: Played):
    fill(redis_played, 3)
    with driven(redis_played, lease=1.5) as driver:
        assert driver.next_batch(0, 10, None) == 1
        time.sleep(3)
        assert redis_played.run(redis_played.box.reap()) == []
        assert claimed(redis_played) == 3
    time.sleep(1.6)
    assert len(redis_played.run(redis_played.box.reap())) == 3


def test_behind_a_full_batch_the_next_one_is_filled_and_whoever_takes_over_goes_on_with_it(redis_played: Played):
    fill(redis_played, 12)
    with driven(redis_played) as driver:
        assert driver.next_batch(0, 5, None) == 1
        holds(lambda: len(members(redis_played, 2)) == 5)
        ahead = members(redis_played, 2)
        assert claimed(redis_played) == 10
    with driven(redis_played) as other:
        assert other.next_batch(0, 5, None) == 1
        assert other.next_batch(1, 5, None) == 2
        assert members(redis_played, 2) == ahead
        assert other.next_batch(2, 5, None) == 3
        assert len(members(redis_played, 3)) == 2
        assert other.next_batch(3, 5, None) == 3
    assert redis_played.run(redis_played.box.stats()).phases[Phase.COMPLETED] == 12
    assert redis_played.run(check_invariants(redis_played.box)) == []


def test_behind_a_batch_that_is_not_full_nothing_is_claimed(redis_played: Played):
    fill(redis_played, 4)
    with driven(redis_played) as driver:
        assert driver.next_batch(0, 5, None) == 1
        redis_played.run(redis_played.box.put(Event("n", event_id="later")))
        time.sleep(0.3)
        assert claimed(redis_played) == 4


def test_a_process_that_was_replaced_is_fenced(redis_played: Played):
    fill(redis_played, 30)
    with driven(redis_played) as old:
        assert old.next_batch(0, 10, None) == 1
        with driven(redis_played) as new:
            assert new.next_batch(0, 10, None) == 1
            old.settle(1)
            with pytest.raises(StreamTaken):
                old.finish()
            with pytest.raises(StreamTaken):
                old.next_batch(1, 10, None)
            assert new.next_batch(1, 10, None) == 2
            new.finish()
            assert redis_played.run(redis_played.box.stats()).phases[Phase.COMPLETED] == 10


def operate(played: Played, action: str, *arguments: Any, **options: Any) -> None:
    played.run(getattr(played.box.operate, action)(*arguments, who="ada", why="a test", **options))


@pytest.mark.req("EM-12")
def test_a_batch_waits_for_what_was_released_with_a_delay_and_comes_again_as_it_was(
    redis_played: Played, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(stream_driver, "ASK_AGAIN", 0.0)
    fill(redis_played, 8)
    with driven(redis_played) as old:
        assert old.next_batch(0, 5, None) == 1
        holds(lambda: len(members(redis_played, 2)) == 3)
    batch = {event_id for event_id, _ in members(redis_played, 1)}
    operate(redis_played, "release", ["e01", "e06"], delay=3600)
    with driven(redis_played, patience=0) as new:
        assert new.next_batch(0, 5, None) == 0
        assert "'lake' waits for 1 event of batch 1" in caplog.text
        with pytest.raises(Refused, match="not available yet; resume the box, or reschedule them"):
            new.sizes(1, 1)
        assert claimed(redis_played) == 6
        assert {event_id for event_id, _ in members(redis_played, 2)} == {"e05", "e07"}  # nobody has read it
        operate(redis_played, "reschedule", ["e01"])
        assert new.next_batch(0, 5, None) == 1
        assert new.sizes(1, 1) == [(1, 5)]
        assert {event_id for event_id, _ in members(redis_played, 1)} == batch
        assert new.next_batch(1, 5, None) == 2
        assert new.next_batch(2, 5, None) == 2
    stats = redis_played.run(redis_played.box.stats())
    assert (stats.phases[Phase.COMPLETED], stats.phases[Phase.RETRY_SCHEDULED]) == (7, 1)
    assert redis_played.run(check_invariants(redis_played.box)) == []


@pytest.mark.req("RO-3")
def test_what_is_to_be_settled_waits_for_a_paused_box(redis_played: Played, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stream_driver, "ASK_AGAIN", 0.0)
    fill(redis_played, 3)
    with driven(redis_played) as old:
        assert old.next_batch(0, 5, None) == 1
    operate(redis_played, "release", ["e01"])
    operate(redis_played, "pause")
    with driven(redis_played) as new:
        assert new.next_batch(1, 5, None) == 1  # the batch is in the sink
        new.finish()
        assert len(members(redis_played, 1)) == 3
        operate(redis_played, "resume")
        assert new.next_batch(1, 5, None) == 1
    assert redis_played.run(redis_played.box.stats()).phases[Phase.COMPLETED] == 3


def test_one_with_another_checkpoint_is_refused_and_disturbs_nobody(redis_played: Played):
    fill(redis_played, 20)
    with driven(redis_played) as right:
        assert right.next_batch(0, 10, None) == 1
        assert right.next_batch(1, 10, None) == 2
        right.finish()
        with driven(redis_played) as wrong:
            assert wrong.time() > 0
            for position in (0, 3):
                for ask in (lambda: wrong.next_batch(position, 10, None), lambda: wrong.settle(position)):  # noqa: B023
                    with pytest.raises(UsageError, match=f"it is at batch {position}, and stream 'lake' of box"):
                        ask()
        assert right.next_batch(2, 10, None) == 2
    assert redis_played.run(redis_played.box.stats()).phases[Phase.COMPLETED] == 20


def test_what_is_settled_at_last_lets_the_next_of_a_line_come(redis_played: Played):
    """Whether the settlement before it is over by then, or not."""
    fill(redis_played, 5)
    line = [Event("n", event_id=f"line{number}", ordering_key="k") for number in range(3)]
    redis_played.run(redis_played.box.put_many(line))
    with driven(redis_played) as driver:
        assert driver.next_batch(0, 5, None) == 1
        assert driver.next_batch(1, 5, None) == 2
        holds(lambda: driver._settling is not None and driver._settling.done())
        assert driver.next_batch(2, 5, None) == 3
        assert driver.next_batch(3, 5, None) == 4
        assert [event_id for event_id, _ in members(redis_played, 4)] == ["line2"]
        assert driver.next_batch(4, 5, None) == 4
    assert redis_played.run(redis_played.box.stats()).phases[Phase.COMPLETED] == 8


def test_what_cannot_be_read_is_not_settled_unless_it_may_be(redis_played: Played):
    fill(redis_played, 3)
    redis_played.run(redis_played.box._store.exchange([("SET", keys.body(redis_played.name, "e01"), b"\xc1")]))

    def drained(**options: str) -> list[dict[str, Any]]:
        reader = DrainReader(drain_options({**redis_played.options(stream="lake"), **options}), SCHEMA)
        with closing(reader._drive()):
            (part,) = reader.partitions({"n": 0}, reader.latestOffset({"n": 0}, reader.getDefaultReadLimit()))
            return [row for batch in reader.read(part) for row in batch.to_pylist()]

    with pytest.raises(
        StoreError, match=r"event e01 cannot be read: its stored body is damaged; nothing of this batch"
    ):
        drained()
    assert claimed(redis_played) == 3
    rows = {row["event_id"]: row for row in drained(onUnreadable="continue")}
    assert [rows[each]["payload"] for each in ("e00", "e01", "e02")] == [b"null", None, b"null"]
    assert "damaged" in rows["e01"]["problem"]
