"""Rows on their way into a box, without a Spark."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from redbox import Event
from redbox.errors import InvalidEvent
from redbox.pipeline.source.writer import PLACE, STEP, WRITABLE, RowEncoder, describe, new_event, row_slices
from redbox.settings import MAX_PAYLOAD
from redbox.store.codec import encode_event, encode_plain

pytestmark = pytest.mark.req("SP-2")


def row(**values: Any) -> tuple[Any, ...]:
    return tuple(values.get(name) for name in WRITABLE)


@pytest.mark.parametrize("content_type", ["application/json", "x/y"])
def test_the_short_way_makes_the_same_as_the_long_one(content_type: str):
    event = Event("n", b"\x00", event_id="one", content_type=content_type)
    assert encode_plain("one", "n", b"\x00", content_type) == encode_event(event, MAX_PAYLOAD, {})
    maker = RowEncoder("job")
    first, second = (maker.encode(row(event_type="n", payload=b"\x00", content_type=content_type), 0) for _ in "ab")
    assert replace(first, event_id="one") == replace(second, event_id="one") == encode_event(event, MAX_PAYLOAD, {})
    assert first.event_id != second.event_id
    assert maker.size == 2


def ids(maker: RowEncoder, *rows: tuple[Any, ...], place: int = 0) -> list[str]:
    return [maker.encode(each, place).event_id for each in rows]


def test_ids_follow_from_job_place_content_and_how_often_it_came():
    a, b = row(event_type="n", payload="a"), row(event_type="n", payload="b")
    made = ids(RowEncoder("job"), a, b, a, a)
    assert len(set(made)) == 4
    assert all(str(uuid.UUID(each)) == each for each in made)
    assert sorted(ids(RowEncoder("job"), a, a, a, b)) == sorted(made)  # in another order
    assert not set(ids(RowEncoder("other"), a, b, a, a)) & set(made)
    assert not set(ids(RowEncoder("job"), a, b, a, a, place=1)) & set(made)
    again = RowEncoder("job")
    assert ids(again, a, b) + ids(again, a, a, place=1) == ids(RowEncoder("job"), a, b) + ids(
        RowEncoder("job"), a, a, place=1
    )


def test_every_field_is_content():
    values = {
        "event_type": "n", "payload": "p", "content_type": "a/b", "headers": {"h": "1"}, "metadata": {"m": "1"},
        "partition_key": "p", "ordering_key": "o", "unique_key": "u", "unique_scope": "UNTOUCHED",
    }  # fmt: skip
    plain = {"event_type": "n", "payload": "p"}
    made = {
        ids(RowEncoder("job"), row(**plain, **{name: value}))[0] for name, value in values.items() if name not in plain
    }
    assert len(made | set(ids(RowEncoder("job"), row(**plain)))) == len(values) - 1
    two = [row(**plain, headers=headers) for headers in ({"a": "1", "b": "2"}, {"b": "2", "a": "1"})]
    assert ids(RowEncoder("job"), two[0]) == ids(RowEncoder("job"), two[1])


def test_what_was_good_once_does_not_excuse_what_is_bad_later():
    maker = RowEncoder("job")
    maker.encode(row(event_type="n", payload="a"), 0)
    for bad in (
        row(event_type="n", payload=None),
        row(event_type="a b", payload="a"),
        row(event_type=None, payload="a"),
        row(event_type="n", payload="a", content_type="no slash"),
        row(event_type="n", payload="a", unique_scope="NEVER"),
        row(event_type="n", payload=bytes(MAX_PAYLOAD + 1)),
    ):
        for _ in range(2):
            with pytest.raises(InvalidEvent):
                maker.encode(bad, 0)


def test_rows_come_in_steps_from_the_columns_that_are_there():
    count = STEP + 1
    texts = pa.map_(pa.string(), pa.string())
    batch = pa.RecordBatch.from_pydict(
        {
            "payload": pa.array([b"x"] * count), "event_type": ["n"] * count, "state": ["DEAD"] * count,
            "headers": pa.array([[("a", "1")]] + [None] * STEP, texts), "metadata": pa.nulls(count, texts),
        }
    )  # fmt: skip
    first, second, third = row_slices(iter([batch, batch.slice(0, 1)]), 7)
    assert (len(first.values), len(second.values), len(third.values)) == (STEP, 1, 1)
    assert (first.first, second.first, third.first) == (1, STEP + 1, STEP + 2)
    assert first.values[0] == row(event_type="n", payload=b"x", headers={"a": "1"})
    assert second.values == [row(event_type="n", payload=b"x")]
    assert list(first.places) == [7] * STEP
    placed = batch.append_column(PLACE, pa.array(range(count)))
    assert list(next(row_slices(iter([placed]), 7)).places) == list(range(STEP))


def test_a_row_is_described_by_what_it_has():
    assert describe(row(event_type="n"), 3, 1) == "row 3 of partition 1, event_type 'n'"
    assert describe(row(event_type="n", event_id="one"), 3, 1) == "row 3 of partition 1, event_id 'one'"


def test_a_refused_row_is_compared_under_the_id_that_was_made_for_it():
    made = new_event(row(event_type="n", payload="p", partition_key="k"), "made")
    assert made == Event("n", "p", event_id="made", partition_key="k")
