"""docs/operations.md names every situation of an explanation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from redbox import Situation

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "operations.md"


@pytest.mark.req("RO-4")
def test_every_situation_is_in_the_document():
    text = DOCUMENT.read_text()
    section = text[text.index("## Why an event is where it is") : text.index("## By hand")]
    named = {word for row in re.findall(r"(?m)^\| (`[^|]*`) \|", section) for word in re.findall(r"`([a-z_]+)`", row)}
    assert named | {Situation.EMPTY} == set(Situation)
    assert f"`{Situation.EMPTY}`" in section
