"""From the archive back to PENDING, whatever became of the events in Redis."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from redbox import Event
from redbox.errors import UsageError
from redbox.pipeline.archive import archive
from redbox.pipeline.options import Address
from redbox.pipeline.replay import replay
from redbox.testing import check_invariants
from redbox.testing.conformance.steps import bury, claim_one, contents, known, publish

from .conftest import Played

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.req("SP-6")


def address(played: Played) -> Address:
    return Address(played.url, played.name)


def test_what_is_gone_is_restored_and_what_is_there_is_replayed(played: Played, spark: SparkSession, tmp_path: Path):
    box, lake = played.box, str(tmp_path)
    event = Event(
        "user.created", b"\x00\xff", event_id="gone", headers={"a": "1"}, metadata={"m": "x"}, partition_key="p",
        ordering_key="o", unique_key="u", unique_scope="UNTOUCHED", content_type="application/x-thing",
    )  # fmt: skip
    played.run(publish(box, event))
    archive(spark, address(played), lake)
    played.run(bury(box, Event("user.deleted", event_id="there"), Event("invoice.paid", event_id="other")))
    archive(spark, address(played), lake, keep=True)
    counted = replay(spark, address(played), lake, where="event_type like 'user.%'", dry_run=True)
    assert (counted.matched, counted.replayed) == (2, 0)
    done = replay(spark, address(played), lake, where="event_type like 'user.%'", who="ada", why="again")
    assert (done.matched, done.replayed, done.restored) == (2, 1, 1)
    assert played.run(check_invariants(box)) == []
    claims = {claim.event_id: claim for claim in played.run(box.claim("relay-1"))}
    assert claims.keys() == {"gone", "there"}
    back = claims["gone"].event
    for field in ("event_type", "payload", "headers", "metadata", "partition_key", "ordering_key", "unique_key",
                  "unique_scope", "content_type"):  # fmt: skip
        assert getattr(back, field) == getattr(event, field)
    (entry, *_) = played.run(box.operate.log())
    assert (entry.action, entry.who, entry.why, entry.count) == ("replay", "ada", "again", 2)
    assert set(entry.ids) == {"gone", "there"}
    assert "event_type like 'user.%'" in entry.detail


def test_running_it_again_is_harmless(redis_played: Played, spark: SparkSession, tmp_path: Path):
    box, lake = redis_played.box, str(tmp_path)
    redis_played.run(publish(box, Event("n", event_id="a"), Event("n", event_id="b")))
    archive(spark, address(redis_played), lake)
    assert replay(spark, address(redis_played), lake).restored == 2
    before = redis_played.run(contents(box))
    assert replay(spark, address(redis_played), lake, who="").live == 2
    assert redis_played.run(contents(box)) == before
    redis_played.run(box.ack(redis_played.run(box.claim("relay-1", limit=1))))
    assert replay(spark, address(redis_played), lake, who="").changed == 1


def test_the_last_life_counts(redis_played: Played, spark: SparkSession, tmp_path: Path):
    box, lake = redis_played.box, str(tmp_path)
    redis_played.run(bury(box, Event("n", event_id="a")))
    archive(spark, address(redis_played), lake, keep=True)
    redis_played.run(box.replay(["a"]))
    redis_played.run(box.ack(redis_played.run(claim_one(box))))
    archive(spark, address(redis_played), lake, keep=True)
    done = replay(spark, address(redis_played), lake)
    assert (done.matched, done.replayed) == (1, 1)
    assert redis_played.run(known(box, "a")).state == "PENDING"


def test_a_unique_key_that_is_held_refuses(redis_played: Played, spark: SparkSession, tmp_path: Path):
    box, lake = redis_played.box, str(tmp_path)
    redis_played.run(publish(box, Event("n", event_id="a", unique_key="u")))
    archive(spark, address(redis_played), lake)
    redis_played.run(box.put(Event("n", event_id="b", unique_key="u")))
    assert replay(spark, address(redis_played), lake).refused == 1


@pytest.mark.parametrize("keep", [True, False])
def test_what_was_superseded_is_refused(redis_played: Played, spark: SparkSession, tmp_path: Path, keep: bool):
    box, lake = redis_played.box, str(tmp_path)
    redis_played.run(bury(box, Event("n", event_id="a"), Event("n", event_id="b")))
    number = redis_played.run(known(box, "a")).number
    redis_played.run(box._store.mark("superseded_by", [("a", number, "new")]))
    archive(spark, address(redis_played), lake, keep=keep)
    done = replay(spark, address(redis_played), lake)
    assert (done.refused, done.replayed + done.restored) == (1, 1)
    assert redis_played.run(known(box, "b")).state == "PENDING"


def test_the_rate_is_kept(redis_played: Played, spark: SparkSession, tmp_path: Path):
    redis_played.run(publish(redis_played.box, *[Event("n") for _ in range(60)]))
    archive(spark, address(redis_played), str(tmp_path))
    began = time.monotonic()
    assert replay(spark, address(redis_played), str(tmp_path), rate=30).restored == 60
    assert time.monotonic() - began > 1.5


def test_a_mistake_is_one_clear_sentence(redis_played: Played, spark: SparkSession, tmp_path: Path):
    redis_played.run(publish(redis_played.box, Event("n")))
    archive(spark, address(redis_played), str(tmp_path))
    with pytest.raises(UsageError, match="is not a condition over the columns of events"):
        replay(spark, address(redis_played), str(tmp_path), where="no_such_column = 1")
    with pytest.raises(UsageError, match="rate must be positive"):
        replay(spark, address(redis_played), str(tmp_path), rate=0)
    with pytest.raises(UsageError, match="there is no archive at"):
        replay(spark, address(redis_played), str(tmp_path / "nowhere"))
