"""The catalogues of mutants fit the current code; `make mutants` runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.catalogue import MUTANTS, Mutant
from tests.mutants.python import PYTHON_MUTANTS

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("mutant", [*MUTANTS, *PYTHON_MUTANTS], ids=lambda mutant: mutant.name)
def test_every_mutant_can_be_applied(mutant: Mutant):
    assert (ROOT / mutant.path).read_text().count(mutant.old) == 1
    assert mutant.old != mutant.new


def test_every_mutant_is_valid_python():
    """A mutant that cannot be imported fails every test, and proves nothing."""
    for mutant in PYTHON_MUTANTS:
        compile((ROOT / mutant.path).read_text().replace(mutant.old, mutant.new), mutant.path, "exec")


def test_the_tests_they_name_exist():
    names = {name for mutant in (*MUTANTS, *PYTHON_MUTANTS) for name in mutant.tests if ".py" in name}
    assert [name for name in names if not (ROOT / name.partition("::")[0]).is_file()] == []
    assert [mutant.name for mutant in (*MUTANTS, *PYTHON_MUTANTS) if not names.intersection(mutant.tests)] == []


def test_there_are_enough_mutants():
    names = [mutant.name for mutant in (*MUTANTS, *PYTHON_MUTANTS)]
    assert len(set(names)) == len(names)
    assert len(MUTANTS) >= 190
    assert len(PYTHON_MUTANTS) >= 40
