"""Patterns of event types, the graph of a configuration, and the lines of a TOML file."""

from __future__ import annotations

import time
import tomllib
from datetime import UTC, datetime

import pytest

from redbox import Box, Event
from redbox.cli.relay.lines import Lines
from redbox.events import stored_event
from redbox.routing.globs import compile_glob
from redbox.routing.graph import Leg, Node, find_problems
from redbox.store.codec import encode_copy, encode_event

TYPES = (
    "order.paid",
    "order.",
    "order",
    "Order.paid",
    "x.order.paid",
    "größe",
    "a\nb",
    "a*b",
    "a?b",
    "[ab]",
    "aXbXb",
    "ab",
)
GLOBS = (
    "*",
    "order.*",
    "*paid",
    "order.????",
    "gr??e",
    "a?b",
    "a*b",
    "*o*d*",
    "[ab]",
    "?",
    "a*b*b",
    "*.*.*",
    "**",
    "ab*b",
)


@pytest.mark.req("RT-2")
async def test_patterns_match_as_the_filters_of_a_box_do(redbox_runner, redis_url: str):
    async with Box.open(redis_url, name="globs") as box:
        await box.put_many([Event(name) for name in TYPES if "\n" not in name])
        for glob in GLOBS:
            found = {record.event.event_type async for record in box.list(event_type=glob)}
            matches = compile_glob("match", glob)
            assert {name for name in TYPES if "\n" not in name and matches(name)} == found, glob
    assert compile_glob("match", "a?b")("a\nb")


def test_no_pattern_is_slow():
    began = time.process_time()
    assert not compile_glob("match", "*a" * 31 + "*b")("a" * 255)
    assert time.process_time() - began < 0.1


def leg(source: str, target: str | None, kind: str = "route", where: str = "s") -> Leg:
    node = None if target is None else Node(target, where)
    return Leg(Node(source, "s"), kind, target or "null:", node)  # type: ignore[arg-type]


@pytest.mark.req("RT-2")
@pytest.mark.parametrize(
    ("legs", "said"),
    [
        ([leg("a", "b"), leg("b", "c"), leg("c", None)], []),
        ([leg("a", "b"), leg("a", "c"), leg("b", "d"), leg("c", "d"), leg("d", None)], []),
        ([leg("a", "b"), leg("b", "a")], ["the boxes form a cycle: a → b → a"]),
        ([leg("x", "a"), leg("a", "y"), leg("y", None), leg("a", "b"), leg("b", "c"), leg("c", "a")],
         ["the boxes form a cycle: a → b → c → a"]),
        ([leg("b", "x"), leg("b", "c"), leg("c", "d"), leg("d", "c"), leg("x", "b"), leg("x", None)],
         ["the boxes form a cycle: b → x → b"]),
        ([leg("a", "c"), leg("a", "b"), leg("b", "a"), leg("c", "d"), leg("d", "c")],
         ["the boxes form a cycle: c → d → c"]),
        ([leg("a", "a")], ["box a cannot be the target of its own relay"]),
        ([leg("a", "b"), leg("b", None), leg("b", "a", "dead_to")], []),
        ([leg("a", None), leg("a", "a", "dead_to")], ["box a cannot be the target of its own relay"]),
        ([leg("a", "b")], ["no relay in this file drains box b; add one, or name the box in other_boxes"]),
        ([leg("a", "other")], []),
        ([leg("a", "b", where="elsewhere")], []),
        ([leg("a", None), leg("a", "b", "dead_to")], []),
    ],
)  # fmt: skip
def test_the_problems_of_a_graph(legs: list[Leg], said: list[str]):
    assert [problem.text for problem in find_problems(legs, [Node("other", "s")])] == said


def test_a_copy_is_encoded_as_the_event_was():
    fields = {
        "event_id": "e", "headers": {"b": "1", "a": "2"}, "partition_key": "p", "ordering_key": "o", "unique_key": "u",
        "unique_scope": "UNTOUCHED",
    }  # fmt: skip
    for event in (Event("a", {"x": 1}), Event("a", b"\x00", content_type="image/x", **fields)):
        payload, content_type = event.encode()
        all_fields = {name: getattr(event, name) for name in event.__struct_fields__}
        due = datetime(2030, 1, 1, tzinfo=UTC)  # by the clock of another server; the copy is available at once
        stored = stored_event(**{**all_fields, "payload": payload, "content_type": content_type, "available_at": due})
        for metadata in ({}, {"m": "1"}):
            assert encode_copy(stored, metadata) == encode_event(event, 1000, metadata)


TOML = '''# [[relay]]
url = """
[[relay]]
to = "x" \\"""
"""
other = ['a', # [[relay]] x = 1
  "b]"]
[[relay]]   # the first
box = "a"
options = { timeout = 5, "x.y" = [1, 2] }
routes = [
  {match = "order.*", to = ["box:billing",
     "box:search"]},   # }
  # a comment ]
  { match = 'mail.*', to = "box:mail" },
]
[relay.dead_options]
timeout = 1
[[ "relay" ]]
to = \'\'\'
[[relay]]
\'\'\'
[[relay.routes]]
match = "a"
[[relay.routes]]
match = "c"
empty = []
a.b.c = 2020-01-01 00:00:00
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("url",), 2),
        (("other", 1), 7),
        (("nothing",), None),
        (("relay",), 8),
        (("relay", 0), 8),
        (("relay", 0, "box"), 9),
        (("relay", 0, "options", "x.y", 1), 10),
        (("relay", 0, "routes", 0, "to", 0), 12),
        (("relay", 0, "routes", 0, "to", 1), 13),
        (("relay", 0, "routes", 1, "match"), 15),
        (("relay", 0, "routes", 1, "missing"), 15),
        (("relay", 0, "dead_options", "timeout"), 18),
        (("relay", 0, "lease"), 8),
        (("relay", 1), 19),
        (("relay", 1, "to"), 20),
        (("relay", 1, "routes", 0, "match"), 24),
        (("relay", 1, "routes", 1, "match"), 26),
        (("relay", 1, "routes", 1, "a", "b", "c"), 28),
    ],
)
def test_lines_of_a_toml_file(path: tuple[str | int, ...], line: int | None):
    tomllib.loads(TOML)
    for text in (TOML, TOML.replace("\n", "\r\n")):
        assert Lines(text).find(path) == line


def test_lines_of_text_that_is_not_toml_are_not_found_but_do_not_fail():
    for text in ("", "=", "[", "[[", "a", "a =", "a = [", "a = {", 'a = "', "a = {b", "]", "\x00"):
        Lines(text)
