"""Explanations of damaged events and lines."""

from __future__ import annotations

import re
from collections.abc import Callable

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


async def test_a_whole_event_that_is_in_no_index_is_put_back_by_a_repair(box: Box):
    await box.put(event())
    await box._store.exchange([("ZREM", keys.pending(box.name), "e")])
    found = await box.why("e")
    assert found.situation is Situation.LOST
    assert found.sentences == (
        "Event e is in no index: it is stored as a whole, but no relay finds it.",
        "It is not delivered before a repair puts it back.",
    )
    assert [step.command() for step in found.next_steps] == ["redbox doctor", "redbox doctor --repair"]
    assert found.found


async def test_an_event_without_its_body_is_not_promised_a_delivery(box: Box):
    await box.put(event())
    await box._store.exchange([("ZREM", keys.pending(box.name), "e"), ("UNLINK", keys.body(box.name, "e"))])
    found = await box.why("e")
    assert found.sentences[0] == "Event e is lost: only a part of it is stored, in no index."
    assert found.sentences[1].startswith("It is not delivered: a repair restores what can be restored.")
    assert [step.command() for step in found.next_steps] == ["redbox doctor", "redbox doctor --repair"]


@pytest.mark.parametrize("part", [keys.body, keys.event])
@pytest.mark.parametrize("alive", [True, False])
async def test_events_that_no_relay_has_found_incomplete_are_named(
    box: Box, part: Callable[[str, str], str], alive: bool
):
    """A relay would move them to `lost` when it claims them; `why` does not wait for one."""
    await box.put_many([event(f"e-{number}") for number in range(3)])
    await box._store.exchange([("UNLINK", part(box.name, "e-1"))])
    if alive:
        await box.beat("relay-1", "1", {}, fresh=10)
    found = await box.why()
    assert any(
        "t least 1 pending event is stored in part, and cannot be delivered: e-1." in each for each in found.sentences
    ), found.sentences
    commands = [step.command() for step in found.next_steps]
    assert "redbox doctor --repair" in commands
    assert found.situation is (Situation.LOST if alive else Situation.NO_RELAY)


async def test_a_box_with_events_in_no_index_does_not_flow(box: Box):
    """The totals say that something is missing, and a look at the keys of the box shows what."""
    await box.put_many([event(f"e-{number}") for number in range(200)])
    await box._store.exchange([("ZREM", keys.pending(box.name), *(f"e-{number}" for number in range(150)))])
    await box.ack(await box.claim("relay-1", limit=1000))
    found = await box.why()
    assert found.situation is Situation.LOST
    # The search for keys ends after a short time; on a busy machine it has then seen a part of them.
    expected = (
        r"(150|At least \d+) events are stored, but in no index: no relay finds them, and they are not delivered\."
    )
    assert re.fullmatch(expected, found.sentences[0])
    assert [step.command() for step in found.next_steps][:2] == ["redbox doctor", "redbox doctor --repair"]
    assert not any("flow" in sentence for sentence in found.sentences)


async def test_totals_that_do_not_add_up_are_no_alarm_by_themselves(box: Box):
    """An id without an event is forgotten by a repair, and totals may be lost: nothing is stored in no index."""
    await box.put_many([event(f"e-{number}") for number in range(3)])
    await box._store.exchange(
        [("ZREM", keys.pending(box.name), "e-1"), ("UNLINK", keys.event(box.name, "e-1"), keys.body(box.name, "e-1"))]
    )
    await box.ack(await box.claim("relay-1"))
    assert (await box.why()).situation is Situation.FLOWING
    await box._store.exchange([("HDEL", keys.counters(box.name), "put")])
    assert (await box.why()).situation is Situation.FLOWING
