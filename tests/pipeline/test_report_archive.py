"""The report over a box and its archive: figures that cover both, and nothing counted twice."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from redbox import Event
from redbox.errors import UsageError
from redbox.pipeline.archive.job import archive, read_archive
from redbox.pipeline.jobs.replay import replay
from redbox.pipeline.report.job import report
from redbox.pipeline.report.tables import events
from redbox.testing.conformance.steps import claim_one, claim_soon, make_dead, publish

from .conftest import Played
from .test_report import DOWN, HOUR, MINUTE, REJECTED, UUIDS, Scene, address, by, figures, hours_in, read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.req("SP-8"), pytest.mark.campaign]


async def play_what_is_moved(scene: Scene) -> None:
    box = scene.box
    await publish(box, *[Event("order.paid", event_id=f"o{number}") for number in range(1, 5)])
    for number in range(1, 5):
        await scene.at(f"o{number}", created_at=0, published_at=100 * number)
    await box.put(Event("mail.send", event_id="retried"))
    await box.retry([await claim_one(box)], error=DOWN % UUIDS[0])
    await box.ack([await claim_soon(box)])
    await scene.at("retried", created_at=0, published_at=MINUTE)
    for number in (1, 2):
        await make_dead(box, Event("order.paid", event_id=f"d{number}"), reason=REJECTED % number)
        await scene.at(f"d{number}", created_at=HOUR, died_at=HOUR + 1000)


async def play_what_is_kept(scene: Scene) -> None:
    await publish(scene.box, Event("mail.send", event_id="k1"), Event("mail.send", event_id="k2"))
    await scene.at("k1", created_at=2 * HOUR, published_at=2 * HOUR + 50)
    await scene.at("k2", created_at=2 * HOUR, published_at=2 * HOUR + 70)
    await make_dead(scene.box, Event("mail.send", event_id="d3"), reason="HTTP 500")
    await scene.at("d3", created_at=2 * HOUR, died_at=2 * HOUR + 1000)


async def play_what_is_live(scene: Scene) -> None:
    """One that is new, one that is kept and was published a second time since, and one that waits."""
    box = scene.box
    await publish(box, Event("order.paid", event_id="new"))
    await scene.at("new", created_at=3 * HOUR, published_at=3 * HOUR + 500)
    await box.replay(["k2"])
    await box.ack([await claim_one(box)])
    await scene.at("k2", available_at=4 * HOUR, published_at=4 * HOUR + 90)
    await box.put(Event("order.paid", event_id="waits"))
    await scene.at("waits", created_at=5 * HOUR)


def test_what_came_back_is_as_the_box_has_it(redis_played: Played, spark: SparkSession, tmp_path: Path):
    """Though it has no claim yet, and the archived life has one."""
    at, lake = address(redis_played), str(tmp_path)
    redis_played.run(publish(redis_played.box, Event("n", event_id="back"), Event("n", event_id="gone")))
    archive(spark, at, lake)
    assert replay(spark, at, lake, where="event_id = 'back'").restored == 1
    rows = events(redis_played.read(spark), read_archive(spark, lake)).collect()
    assert sorted(figures(row, "event_id", "place", "state", "latest") for row in rows) == [
        ("back", "archive", "PUBLISHED", False),
        ("back", "box", "PENDING", True),
        ("gone", "archive", "PUBLISHED", True),
    ]


def test_the_figures_cover_the_box_and_its_archive(redis_played: Played, spark: SparkSession, tmp_path: Path):
    at, scene, lake, to = address(redis_played), Scene(redis_played), str(tmp_path / "lake"), tmp_path / "report"
    redis_played.run(play_what_is_moved(scene))
    assert archive(spark, at, lake).removed == 7
    redis_played.run(play_what_is_kept(scene))
    assert archive(spark, at, lake, keep=True).rows == 3
    redis_played.run(play_what_is_live(scene))

    done = report(spark, at, str(to), archive=read_archive(spark, lake, box=redis_played.name))
    assert (done.events, done.published, done.dead, done.pending, done.failures) == (12, 8, 3, 1, 4)
    assert (done.p50_ms, done.p99_ms) == (200, MINUTE)

    overview = {(row["place"], row["state"]): row["events"] for row in read(spark, to, "overview")}
    assert overview == {
        ("archive", "PUBLISHED"): 5, ("archive", "DEAD"): 2,
        ("box", "PUBLISHED"): 3, ("box", "DEAD"): 1, ("box", "PENDING"): 1,
    }  # fmt: skip
    volume = {
        (hours_in(scene, row["hour"]), row["event_type"]): figures(row, "events", "published", "dead")
        for row in read(spark, to, "volume")
    }
    assert volume == {
        (0, "order.paid"): (4, 4, 0), (0, "mail.send"): (1, 1, 0), (1, "order.paid"): (2, 0, 2),
        (2, "mail.send"): (3, 2, 1), (3, "order.paid"): (1, 1, 0), (5, "order.paid"): (1, 0, 0),
    }  # fmt: skip
    latency = by(read(spark, to, "latency"), "event_type")
    names = ("published", "retried", "p50_ms", "p99_ms", "max_ms")
    assert figures(latency["order.paid"], *names) == (5, 0, 300, 500, 500)
    assert figures(latency["mail.send"], *names) == (4, 1, 70, MINUTE, MINUTE)  # k2 was delivered twice
    throughput = {
        hours_in(scene, row["hour"]): figures(row, "published", "died") for row in read(spark, to, "throughput")
    }
    assert throughput == {0: (5, 0), 1: (0, 2), 2: (2, 1), 3: (1, 0), 4: (1, 0)}
    attempts = {row["attempts"]: figures(row, "published", "dead") for row in read(spark, to, "attempts")}
    assert attempts == {1: (7, 3), 2: (2, 0)}
    dead = [figures(row, "event_type", "dead") for row in read(spark, to, "dead")]
    assert dead == [("order.paid", 2), ("mail.send", 1)]
    causes = {row["fingerprint"][:8]: figures(row, "failures", "dead_now") for row in read(spark, to, "causes")}
    assert causes == {"http 422": (2, 2), "http 503": (1, 0), "http 500": (1, 1)}

    page = (to / "report.html").read_text()
    assert "<b>12</b>" in page
    assert "7 of them in the archive" in page
    assert "live box and archive" in page.lower()
    with pytest.raises(UsageError, match="is the archive of box"):
        read_archive(spark, lake, box="other")
