"""Selections: globs become Lua patterns that mean the same, cursors survive, and what is wrong is said."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from lupa import lua51 as lupa  # as fakeredis does: two Lua versions in one process do not get on

from redbox.box.bulk.selection import decode_cursor, encode_cursor, select
from redbox.errors import InvalidEvent, UsageError
from redbox.keys import INDEXES
from redbox.store.scripts.replies import Position

GLOB = Path(__file__).resolve().parents[2] / "lua" / "include" / "compile_glob.lua"
LUA = lupa.LuaRuntime(encoding=None).execute(GLOB.read_bytes() + b"return compile_glob")


def matches(glob: bytes, text: bytes) -> bool:
    matching, _ = LUA(glob)
    return bool(matching(text))


def cost(glob: bytes, text: bytes) -> float:
    _, costing = LUA(glob)
    return float(costing(text))


@pytest.mark.parametrize(
    ("glob", "matching", "others"),
    [
        ("user.created", ["user.created"], ["userXcreated", "user.created.v2", "a.user.created"]),
        ("user.*", ["user.", "user.created", "user.created.v2"], ["user", "users.created", "a.user.created"]),
        ("*.created", ["user.created", ".created"], ["user.created.v2", "usercreated"]),
        ("*", ["", "anything at all"], []),
        ("user.?", ["user.a", "user.?"], ["user.", "user.ab"]),
        ("a%d", ["a%d"], ["a5", "ad", "a%%d"]),
        ("%a", ["%a"], ["x"]),
        ("a-b+c", ["a-b+c"], ["b+c", "abc", "a-bbc"]),
        ("[ab]", ["[ab]"], ["a", "b"]),
        ("^a$", ["^a$"], ["a"]),
        ("(a)", ["(a)"], ["a"]),
        ("a_b", ["a_b"], ["aXb"]),
        ("*a*b*", ["ab", "xaxbx", "aab"], ["ba", "a", "b"]),
        ("**", ["", "a"], []),
        ("a*a", ["aa", "aba", "aaa"], ["a", "ab"]),
        ("?", ["a", "ü", "€"], ["", "ab"]),
        ("*?ö", ["aö", "üö", "ööö"], ["ö"]),
        ("a*??", ["abc", "aüö", "abcd"], ["a", "ab", "aü"]),
        ("?a*", ["ba", "üab"], ["a", "aü"]),
        ("*a?b*c", ["a.bc", "aab.bc", "xaübyc"], ["abc", "a.b", "a.bcd"]),
        ("a*ba", ["aba", "abba"], ["ab", "ba", "abab"]),
        ("größe.*", ["größe.neu"], ["grosse.neu"]),
    ],
)
def test_globs(glob: str, matching: list[str], others: list[str]):
    assert [text for text in matching if not matches(glob.encode(), text.encode())] == []
    assert [text for text in others if matches(glob.encode(), text.encode())] == []


@pytest.mark.parametrize("glob", ["*a" * 60 + "*b", "*" + "a" * 127 + "b", "*" + "?" * 127 + "b"])
def test_no_glob_takes_long(glob: str):
    """A matcher that backtracks over every star would not end in a lifetime."""
    assert not matches(glob.encode(), b"a" * 255)


def test_the_cost_of_a_glob_is_its_worst_case():
    """In looks, ten microseconds each: a page ends early when it has used up as many as it may."""
    assert cost(b"user.*", b"user.created") < 0.01
    assert cost(b"*" + b"a" * 127 + b"b", b"a" * 255) < 1
    assert cost(b"*" + b"?" * 31 + b"\xf0\x9f\x98\x80" * 100, b"\xf0\x9f\x98\x80" * 255) > 100


def test_a_glob_has_a_limited_number_of_wildcards():
    assert select(event_type="*" * 16 + "?" * 16).event_type == "*" * 16 + "?" * 16
    with pytest.raises(UsageError, match=r"event_type: takes at most 32 wildcards \(\* and \?\), not 33"):
        select(event_type="*" * 16 + "?" * 17)
    with pytest.raises(UsageError, match="event_type: must be 1 to 255 characters"):
        select(event_type="a" * 256)


@pytest.mark.parametrize(
    ("state", "indexes"),
    [
        (None, INDEXES),
        ("PENDING", ("pending", "waiting", "suspect")),
        ("pending", ("pending", "waiting", "suspect")),
        ("CLAIMED", ("claimed",)),
        ("PUBLISHED", ("published",)),
        ("dead", ("dead",)),
    ],
)
def test_a_state_names_its_indexes(state: str | None, indexes: tuple[str, ...]):
    assert select(state=state).indexes == indexes


def test_filters():
    chosen = select(
        state="DEAD",
        event_type="user.*",
        key="user:42",
        error="Time OUT",
        since=datetime(2030, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC),
        until=datetime(2030, 1, 2, 3, 4, 6, tzinfo=UTC),
        created_since=datetime(2030, 1, 1, tzinfo=UTC),
    )
    assert chosen.filters() == {
        "since": 1_893_553_445_678,
        "until": 1_893_553_446_000,
        "created_since": 1_893_456_000_000,
        "created_until": None,
        "event_type": "user.*",
        "key": "user:42",
        "error": "time out",
    }
    times = dict.fromkeys(("since", "until", "created_since", "created_until"))
    assert select().filters() == {**times, "event_type": "", "key": "", "error": ""}


@pytest.mark.parametrize("state", ["GONE", "", "AVAILABLE", 5])
def test_an_unknown_state_is_refused_and_the_known_ones_listed(state: Any):
    with pytest.raises(UsageError, match="PENDING, CLAIMED, PUBLISHED, DEAD"):
        select(state=state)


@pytest.mark.parametrize("bound", ["since", "until", "created_since", "created_until"])
@pytest.mark.parametrize("moment", [datetime(2030, 1, 2), "2030-01-02", 5])
def test_bounds_are_aware_datetimes(bound: str, moment: Any):
    with pytest.raises(InvalidEvent) as caught:
        select(**{bound: moment})
    assert caught.value.field == bound


@pytest.mark.parametrize(
    ("index", "score", "event_id"),
    [("pending", b"1893553445678", b"some-id"), ("dead", b"1893553445678", b"id:with:colons"), ("dead", b"", b"")],
)
def test_a_cursor_is_decoded_as_it_was_encoded(index: str, score: bytes, event_id: bytes):
    cursor = encode_cursor(index, Position(score, event_id))
    assert decode_cursor(cursor, INDEXES) == (index, (score, event_id))


@pytest.mark.parametrize(
    "cursor", ["nonsense", "pending:abc:id", "elsewhere:1:id", "claimed:1:id", "dead:--1:id", "dead:1-:id", "dead:²:id"]
)
def test_a_cursor_of_another_listing_is_refused(cursor: str):
    with pytest.raises(UsageError, match="does not belong to this listing"):
        decode_cursor(cursor, ("pending", "dead"))
