"""In which order a replay from the archive gives out the events of one key; Spark is not needed for it."""

from __future__ import annotations

from typing import Any

import pytest

from redbox import Event
from redbox.pipeline.jobs.replay import _send
from redbox.pipeline.source.connection import connected
from redbox.pipeline.source.options import Address
from redbox.testing import check_invariants
from redbox.testing.conformance.steps import claim_one

from .conftest import Played

IDS = ["e1", "e2", "e3", "e4"]


def archived(event_id: str, claim: int, created_at: Any) -> dict[str, Any]:
    """The row of an archive, as far as a replay needs it."""
    empty = dict.fromkeys(("partition_key", "unique_key", "superseded_by"))
    return {
        **empty, "event_id": event_id, "event_type": "n", "payload": b"{}", "content_type": "application/json",
        "headers": {}, "metadata": {}, "ordering_key": "k", "unique_scope": "ALL_LIVE", "claim": claim,
        "created_at": created_at,
    }  # fmt: skip


@pytest.mark.req("OP-4")
@pytest.mark.parametrize(
    ("dead_head", "expected"),
    [("skip", IDS), ("block", ["e4", "e1", "e2", "e3"])],
    ids=["skip", "block"],
)
def test_a_dead_event_that_is_still_there_keeps_its_place_under_block(
    redis_played: Played, dead_head: str, expected: list[str]
):
    """Of four archived events the last is DEAD and still in Redis, the others were PUBLISHED and are gone."""
    box, run = redis_played.box, redis_played.run
    run(box.operate.configure(who="ada", why="", dead_head=dead_head))
    rows = []
    for event_id in IDS:
        run(box.put(Event("n", {}, event_id=event_id, ordering_key="k")))
    for event_id in IDS:
        claim = run(claim_one(box))
        assert claim.event_id == event_id
        run(box.kill(claim, reason="bad") if event_id == "e4" else box.ack(claim))
        record = run(box.get(event_id))
        assert record is not None
        rows.append(archived(event_id, record.number, record.created_at))
    run(box.operate.drop(IDS[:3], who="ada", why="archived"))
    with connected(Address(redis_played.url, redis_played.name)) as connection:
        assert _send(connection, rows) == ["restored", "restored", "restored", "replayed"]
    seen = []
    while claims := run(box.claim("relay-1")):
        seen += [claim.event_id for claim in claims]
        run(box.ack(claims))
    assert seen == expected
    assert run(check_invariants(box)) == []
