"""Key names are the same in the scripts and in Python."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from lupa import lua51 as lupa  # the version that fakeredis uses: two Lua versions in one process conflict

from redbox import State, keys
from redbox.store.scripts.registry import lua_root

BOX = "orders"


@pytest.fixture(scope="module")
def lua() -> dict[str, Any]:
    """Returns the definitions of keys.lua, with the meta key of the box as KEYS[1]."""
    runtime = lupa.LuaRuntime()
    runtime.globals().KEYS = runtime.table(keys.meta(BOX))
    text = (lua_root() / "include" / "keys.lua").read_text()
    names = ("key", "event", "body", "history", "line", "unique", "relay", "wait", "stream", "lock", "rates")
    defined = ", ".join(("key", *(f"{name}_key" for name in names[1:])))
    run = runtime.execute(f"{text}\nreturn {{ {defined} }}")
    return dict(zip(names, run.values(), strict=True))


OURS = {"meta", "pending", "waiting", "suspect", "claimed", "published", "dead", "retries", "blocked", "lost"}
OURS |= {"counters", "alone", "log", "wake", "relays", "paused", "pauses", "limits"}


def test_the_keys_of_a_box_are_the_same(lua: dict[str, Any]):
    assert {name: lua["key"][name] for name in OURS} == {name: getattr(keys, name)(BOX) for name in OURS}


def test_no_script_asks_for_a_key_that_does_not_exist():
    scripts = [path.read_text() for path in Path(str(lua_root())).rglob("*.lua")]
    assert {name for text in scripts for name in re.findall(r"\bkey\.(\w+)", text)} == OURS


def test_the_keys_of_an_event_are_the_same(lua: dict[str, Any]):
    assert lua["event"] + "id" == keys.event(BOX, "id") == "{redbox:orders:0}:e:id"
    assert lua["body"] + "id" == keys.body(BOX, "id")
    assert lua["history"] + "id" == keys.history(BOX, "id")
    assert lua["line"] + "user:42" == keys.line(BOX, "user:42")
    assert lua["unique"] + "user:42" == keys.unique(BOX, "user:42")
    assert lua["wait"] + "abc" == keys.wait(BOX, "abc")
    assert lua["relay"] + "relay-1" == keys.relay(BOX, "relay-1")
    assert lua["stream"] + "lake" == keys.stream(BOX, "lake")
    assert lua["lock"] + "archive" == keys.lock(BOX, "archive")
    assert lua["rates"] + "10" == keys.rates(BOX, 10)


def test_every_key_that_a_box_has_once_has_a_type():
    assert sorted(keys.TYPES) == sorted(kind for kind in keys.KINDS if ":" not in kind)


def test_every_kind_of_key_is_known():
    made = [
        function(BOX, *("x", 1)[: len(inspect.signature(function).parameters) - 1]).removeprefix(f"{keys.prefix(BOX)}:")
        for function in vars(keys).values()
        if inspect.isfunction(function)
        and function.__doc__
        and re.match("Hash|String|List|S(orted|tream)", function.__doc__)
    ]
    assert sorted(made) == sorted(keys.KINDS)


def test_no_two_keys_share_a_name():
    whole = [keys.pending, keys.waiting, keys.suspect, keys.claimed, keys.published, keys.dead, keys.retries, keys.meta]
    whole += [keys.blocked, keys.lost, keys.counters, keys.alone, keys.log]
    parts = [keys.event, keys.body, keys.history, keys.line, keys.unique]
    names = [function(BOX) for function in whole] + [function(BOX, "pending") for function in parts]
    assert len(set(names)) == len(names) == 18


@pytest.mark.req("DC-3")
def test_a_box_lives_in_one_cluster_slot():
    from redis.crc import key_slot

    names = [
        keys.meta(BOX),
        keys.pending(BOX),
        keys.event(BOX, "{other}"),
        keys.line(BOX, "{a}b"),
        keys.unique(BOX, "}{"),
    ]
    assert len({key_slot(name.encode()) for name in names}) == 1


@pytest.mark.parametrize(
    ("key", "box"),
    [
        (b"{redbox:orders:0}:meta", "orders"),
        (b"{redbox:a.b-c_d:0}:meta", "a.b-c_d"),
        (b"{redbox:orders:1}:meta", None),
        (b"{redbox:orders:0}:pending", None),
        (b"{redbox::0}:meta", None),
        (b"x{redbox:orders:0}:meta", None),
    ],
)
def test_the_box_of_a_meta_key(key: bytes, box: str | None):
    assert keys.box_of_meta(key) == box


def test_the_indexes_of_each_state_are_the_same():
    runtime = lupa.LuaRuntime()
    text = (lua_root() / "include" / "list_indexes.lua").read_text()
    indexes = runtime.execute(f"{text}\nreturn list_indexes")
    assert {state: tuple(indexes(state).values()) for state in State} == keys.INDEXES_OF
    assert list(indexes("OTHER").values()) == []


def test_every_index_has_its_key():
    assert keys.INDEXES == ("pending", "waiting", "suspect", "claimed", "published", "dead")
    assert all(getattr(keys, index)(BOX).endswith(f":{index}") for index in keys.INDEXES)
