"""Names that the page holds are those of the service: situations, filters, actions, states and marks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final, get_args

import pytest

from redbox.box.desk.incidents import Kind
from redbox.box.why import Situation
from redbox.events import Phase
from redbox.service.operations.documents import Action, JobState
from redbox.service.operations.filters import EventFilter

pytestmark = pytest.mark.req("SF-6")

FOLDER: Final = Path(__file__).parents[2] / "redbox" / "service" / "dashboard"


def names(module: str, constant: str) -> set[str]:
    """The names of the members of an object in a module."""
    text = (FOLDER / module).read_text()
    found = re.search(rf"const {constant} = \{{(.*?)\}};\n", text, re.DOTALL)
    assert found, f"{module} has no {constant}"
    flat = re.sub(r"\{[^{}]*\}|\[[^\[\]]*\]|'(?:[^'\\]|\\.)*'|//[^\n]*", "", found[1])
    return set(re.findall(r"(\w+):", flat))


def of(values: Iterable[str]) -> set[str]:
    return {str(value) for value in values}


@pytest.mark.parametrize(
    ("module", "constant", "wanted"),
    [
        ("parts.js", "SITUATIONS", of(Situation)),
        ("jobs.js", "BULK_ACTIONS", of(get_args(Action))),
        ("jobs.js", "JOB_STATES", of(get_args(JobState))),
        ("chart.js", "MARKS", of(get_args(Kind))),
    ],
)
def test_the_page_knows_every_name_of_the_service(module: str, constant: str, wanted: set[str]):
    assert names(module, constant) == wanted


def test_the_filters_of_the_page_are_those_of_the_service():
    wanted = {field.replace("event_type", "type") for field in EventFilter.__struct_fields__}
    assert names("filters.js", "FILTERS") | {"state", "phase"} == wanted


def test_the_phases_of_the_page_are_those_of_an_event():
    shown = set(re.findall(r"\{ name: '([A-Z_]+)', label:", (FOLDER / "parts.js").read_text()))
    assert shown == of(Phase) | {"WAITING"}
