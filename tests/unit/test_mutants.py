"""The catalogue of mutants fits the scripts as they are; `make mutants` runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.catalogue import MUTANTS, Mutant

LUA = Path(__file__).resolve().parents[2] / "lua"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_it_can_be_applied(mutant: Mutant):
    assert (LUA / mutant.file).read_text().count(mutant.old) == 1
    assert mutant.old != mutant.new


def test_there_are_enough_of_them():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 25
