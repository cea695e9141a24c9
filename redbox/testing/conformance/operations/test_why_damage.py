"""Explanations of damaged events and lines."""

from __future__ import annotations

import pytest

from redbox import Box, Situation, keys
from redbox.testing.conformance.operations.scenes.steps import event

pytestmark = pytest.mark.req("RO-4")


async def test_why_of_many_damages(box: Box):
    """Damage never makes the explanation fail."""
    await box.put_many([event(each, ordering_key="k", unique_key=f"u-{each}") for each in ("a", "b", "c")])
    for command in (
        ("HSET", keys.event(box.name, "a"), "available_at", "x", "attempts", "y"),
        ("UNLINK", keys.line(box.name, "k")),
        ("HDEL", keys.event(box.name, "b"), "ordering_key"),
        ("ZADD", keys.waiting(box.name), "+inf", "b"),
        ("HSET", keys.event(box.name, "c"), "state", "GONE"),
        ("UNLINK", keys.event(box.name, "a")),
        ("ZADD", keys.line(box.name, "k"), 1, "no-such-event"),
        ("ZADD", keys.claimed(box.name), 1, "no-such-event"),
    ):
        await box._store.exchange([command])
        for each in ("a", "b", "c", "no-such-event"):
            assert (await box.why(each)).sentences
            assert (await box.why(unique_key=f"u-{each}")).sentences
        assert (await box.why(key="k")).sentences
        assert (await box.why()).sentences


async def test_crossed_lines(box: Box):
    """Each of two events is the head of the other one's line: a head is explained once."""
    await box.put_many([event(each, ordering_key=f"key-{each}") for each in ("a", "b")])
    for mine, other in (("a", "b"), ("b", "a")):
        await box._store.exchange([("ZADD", keys.line(box.name, f"key-{mine}"), 0, other)])
        await box._store.exchange([("ZREM", keys.pending(box.name), mine)])
        await box._store.exchange([("ZADD", keys.waiting(box.name), 1, mine)])
    found = await box.why("a")
    assert found.situation is Situation.WAITING
    assert [sentence.partition(",")[0] for sentence in found.sentences] == [
        "It waits behind event b",
        "Event b waits behind event a",
    ]
    assert [step.command() for step in found.next_steps] == ["redbox doctor"]
    await box.why(key="key-a")
    await box.why()


async def test_a_part_of_an_event_that_is_in_no_index_is_lost(box: Box):
    await box.put(event())
    await box._store.exchange([("ZREM", keys.pending(box.name), "e")])
    found = await box.why("e")
    assert found.situation is Situation.LOST
    assert found.sentences[0] == "Event e is lost: only a part of it is stored, in no index."
    assert found.found
