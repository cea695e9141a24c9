"""Selections: globs become Lua patterns that mean the same, cursors survive, and what is wrong is said."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from lupa import lua51 as lupa  # as fakeredis does: two Lua versions in one process do not get on

from redbox.box.selection import decode_cursor, encode_cursor, select
from redbox.errors import InvalidEvent, UsageError
from redbox.keys import INDEXES

GLOB = Path(__file__).resolve().parents[2] / "lua" / "include" / "glob.lua"
matches = lupa.LuaRuntime(encoding=None).execute(GLOB.read_bytes() + b"return glob")


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
        ("größe.*", ["größe.neu"], ["grosse.neu"]),
    ],
)
def test_globs(glob: str, matching: list[str], others: list[str]):
    assert [text for text in matching if not matches(glob.encode(), text.encode())] == []
    assert [text for text in others if matches(glob.encode(), text.encode())] == []


def test_no_glob_takes_long():
    """A matcher that backtracks over every star would not end in a lifetime."""
    assert not matches(b"*a" * 60 + b"*b", b"a" * 255)


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


def test_arguments():
    chosen = select(
        state="DEAD",
        event_type="user.*",
        key="user:42",
        error="Time OUT",
        since=datetime(2030, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC),
        until=datetime(2030, 1, 2, 3, 4, 6, tzinfo=UTC),
    )
    assert chosen.arguments() == (1_893_553_445_678, 1_893_553_446_000, "user.*", "user:42", "time out")
    assert select().arguments() == ("", "", "", "", "")


@pytest.mark.parametrize("state", ["GONE", "", "AVAILABLE", 5])
def test_an_unknown_state_is_refused_and_the_known_ones_listed(state: Any):
    with pytest.raises(UsageError, match="PENDING, CLAIMED, PUBLISHED, DEAD"):
        select(state=state)


@pytest.mark.parametrize("bound", ["since", "until"])
@pytest.mark.parametrize("moment", [datetime(2030, 1, 2), "2030-01-02", 5])
def test_bounds_are_aware_datetimes(bound: str, moment: Any):
    with pytest.raises(InvalidEvent) as caught:
        select(**{bound: moment})
    assert caught.value.field == bound


@pytest.mark.parametrize(
    ("index", "score", "event_id"),
    [("pending", b"1893553445678", b"some-id"), ("dead", b"1893553445678", b"id:with:colons"), ("dead", b"", b"")],
)
def test_a_cursor_comes_back(index: str, score: bytes, event_id: bytes):
    cursor = encode_cursor(index, score, event_id)
    assert decode_cursor(cursor, INDEXES) == (index, score.decode(), event_id.decode())


@pytest.mark.parametrize(
    "cursor", ["nonsense", "pending:abc:id", "elsewhere:1:id", "claimed:1:id", "dead:--1:id", "dead:1-:id", "dead:²:id"]
)
def test_a_cursor_of_another_listing_is_refused(cursor: str):
    with pytest.raises(UsageError, match="does not belong to this listing"):
        decode_cursor(cursor, ("pending", "dead"))
