"""A batch is cut into pieces that one script call may take."""

from __future__ import annotations

import pytest

from redbox.box.receipts import chunks
from redbox.settings import BATCH_COUNT, STEP_BYTES
from redbox.store.codec import EncodedEvent


def sizes(*bodies: bytes) -> list[int]:
    """How many events each piece has."""
    return [len(piece) for piece in chunks([(body, EncodedEvent("id", "n", body, 0, "")) for body in bodies])]


@pytest.mark.req("SC-4")
def test_pieces_are_bounded_in_bytes():
    half = b"x" * (STEP_BYTES // 2)
    assert sizes(half, half) == [2]
    assert sizes(half, half, b"x") == [2, 1]
    assert sizes(b"x", half, half, half) == [2, 2]


def test_one_that_is_too_large_by_itself_is_a_piece():
    assert sizes(b"x", b"x" * (STEP_BYTES + 1), b"x") == [1, 1, 1]


def test_pieces_are_bounded_in_count():
    assert sizes(*[b"x"] * BATCH_COUNT) == [BATCH_COUNT]
    assert sizes(*[b"x"] * (2 * BATCH_COUNT + 1)) == [BATCH_COUNT, BATCH_COUNT, 1]
