"""Existing boxes have layout 1: this version reads it, works with it, and still writes it.

`python -m tests.layout` wrote `layout-1.json`. Do not write it again: a change that needs it needs layout 2.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from redbox import Box, Event, Phase, State
from redbox.testing import advance, check_invariants
from tests.layout.scene import build, dump, restore, stored

pytestmark = pytest.mark.usefixtures("redbox_runner")
#: Numbers that differ from run to run: moments in milliseconds.
MOMENT = re.compile(r"\b1[0-9]{12}\b")


def masked(data: Any) -> Any:
    if isinstance(data, dict):
        return {name: masked(value) for name, value in data.items()}
    if isinstance(data, list):
        return [masked(value) for value in data]
    return MOMENT.sub("T", data)


def without_ended_claims(data: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Earlier versions kept these two fields when a claim ended without success."""
    for name, (_, value) in data.items():
        if name.startswith(":e:") and value["state"] in ("PENDING", "DEAD"):
            value.pop("claimed_at", None)
            value.pop("claimed_by", None)
    return data


def without_longest_lease(data: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Earlier versions neither write nor read this field."""
    data[":meta"][1].pop("longest_lease", None)
    return data


async def test_the_stored_box_is_sound_and_is_read_correctly(box: Box):
    await restore(box, stored())
    assert await check_invariants(box) == []
    records = {record.event_id: record async for record in box.list()}
    assert {event_id: record.state for event_id, record in records.items() if record.state is not State.PENDING} == {
        "a-blocking": State.DEAD,
        "b-dead": State.DEAD,
        "c-published": State.PUBLISHED,
        "f-claimed": State.CLAIMED,
    }
    assert records["json"].event.decode() == {"id": 1}
    assert (records["bytes"].event.payload, records["bytes"].event.headers) == (b"\x00\xff", {"a": "1"})
    assert records["bytes"].event.metadata == {"m": "ä"}
    assert (records["text"].event.decode(), records["text"].event.partition_key) == ("text", "p")
    assert records["xml"].event.content_type == "application/xml"
    assert records["unique"].event.unique_scope == "UNTOUCHED"
    assert (records["d-released"].attempts, records["d-released"].excused) == (1, 1)
    assert records["e-retried"].last_error == "again"
    assert (records["b-dead"].last_error, records["b-dead"].history[-1].error) == ("bad data", "bad data")
    assert [attempt.seconds for attempt in records["b-dead"].history] == [None]  # not measured at that time
    assert records["c-published"].published_seconds is not None
    assert records["f-claimed"].claimed_by == "relay-2"
    assert records["g-suspect"].suspect
    assert records["line-2"].waiting
    assert (await box.stats()).phases[Phase.IN_FLIGHT] == 1


async def test_the_stored_box_can_be_used(box: Box):
    await restore(box, stored())
    again = await box.put(Event("plain.json", {"id": 1}, event_id="json"))
    assert not again.created
    await advance(box, hours=12)
    await box.reap()
    await box.replay(["a-blocking", "b-dead", "c-published"])
    delivered: list[str] = []
    while claims := await box.claim("relay", limit=100):
        delivered += [claim.event_id for claim in claims]
        assert all(await box.ack(claims))
    everything = {name.removeprefix(":e:") for name in stored() if name.startswith(":e:")}
    assert sorted(delivered) == sorted(everything)
    for line in (["line-1", "line-2", "line-3"], ["a-blocking", "blocked"]):
        assert [each for each in delivered if each in line] == line
    assert await check_invariants(box) == []


async def test_this_version_writes_the_same_layout(box: Box):
    """Except `seq` of an ordered event and the starts of attempts, which were added later to the hash of an event; an
    older version ignores them."""
    await build(box)
    assert await check_invariants(box) == []
    written = masked(without_longest_lease(await dump(box)))
    for name, (kind, value) in written.items():
        if name.startswith(":e:") and kind == "hash":
            for field in [each for each in value if each.startswith("began")]:
                assert value.pop(field).endswith(":T")
            assert value.pop("seq", None) == (written[f":line:{value['ordering_key']}"][1][name.removeprefix(":e:")]
                                              if "ordering_key" in value else None)  # fmt: skip
    assert written == masked(without_ended_claims(stored()))
