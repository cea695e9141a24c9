"""The state machine is defined three times: in Python, in Lua and in the drawing. The three agree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from redbox.events import TRANSITIONS, State
from redbox.store.scripts.registry import REGISTRY

ROOT = Path(__file__).parents[2]
DRAWING = (ROOT / "docs" / "state-machine.md").read_text()
SCRIPTS = {path.stem: path.read_text() for path in (ROOT / "lua").glob("*.lua")}
WRITES_STATE = re.compile(r'"HSET", [^\n]*"state", "(\w+)"')

pytestmark = pytest.mark.req("PL-1")


def drawn() -> set[tuple[str, str, str]]:
    (diagram,) = re.findall(r"```mermaid\nstateDiagram-v2\n(.*?)```", DRAWING, re.DOTALL)
    lines = [line for line in diagram.split("\n") if line.strip()]
    arrows = [re.fullmatch(r"\s+(\S+) --> (\S+) : (\w+)", line) for line in lines]
    assert all(arrows), "the drawing holds arrows only"
    found = [arrow.groups() for arrow in arrows if arrow]
    assert len(set(found)) == len(found), "an arrow is drawn twice"
    return {(source, target, script) for source, target, script in found}


def test_the_drawing_shows_exactly_the_legal_transitions():
    legal = {(source.value, target.value, script) for script, ways in TRANSITIONS.items() for source, target in ways}
    assert drawn() == legal | {("[*]", "PENDING", "put")}


@pytest.mark.req("EM-4")
def test_there_are_four_states():
    assert set(State) == {"PENDING", "CLAIMED", "PUBLISHED", "DEAD"}
    assert {state for arrow in drawn() for state in arrow[:2]} == set(State) | {"[*]"}


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_a_script_writes_the_states_of_its_transitions(name: str):
    written = set(WRITES_STATE.findall(SCRIPTS[name]))
    assert written == {target for _, target, script in drawn() if script == name}


@pytest.mark.req("EM-4")
def test_no_include_writes_a_state():
    includes = [*(ROOT / "lua" / "include").glob("*.lua"), *(ROOT / "lua" / "testing").glob("*.lua")]
    assert [path.name for path in includes if '"state", "' in path.read_text() and "HSET" in path.read_text()] == []


@pytest.mark.parametrize("name", sorted(TRANSITIONS))
def test_a_script_names_its_transitions_in_its_first_line(name: str):
    purpose = SCRIPTS[name].split("\n")[1]
    named = set(re.findall(r"([A-Z]+) → ([A-Z]+)", purpose))
    assert named == {(source.value, target.value) for source, target in TRANSITIONS[name]}


@pytest.mark.req("SC-5", "PL-5")
def test_only_kill_makes_an_event_dead():
    assert [name for name in SCRIPTS if "DEAD" in WRITES_STATE.findall(SCRIPTS[name])] == ["kill"]


def test_the_text_explains_every_script_in_the_drawing():
    explained = set(re.findall(r"^- \*\*(\w+)\*\*", DRAWING, re.MULTILINE))
    assert explained == {script for _, _, script in drawn()}
    assert explained <= set(REGISTRY)


def test_the_text_explains_every_state():
    assert re.findall(r"^\| ([A-Z]+) \|", DRAWING, re.MULTILINE) == ["PENDING", "CLAIMED", "PUBLISHED", "DEAD"]
