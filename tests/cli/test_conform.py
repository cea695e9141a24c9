"""`redbox conform` runs the suite; the suite itself is tested elsewhere."""

from __future__ import annotations

import builtins
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Redbox

ONE = "test_claim_and_ack"


def conform(*arguments: str, as_json: bool = False) -> subprocess.CompletedProcess[str]:
    """Runs in its own process, since pytest within pytest shares too much."""
    flags = ["--json"] if as_json else []
    return subprocess.run(
        [sys.executable, "-m", "redbox", *flags, "--url", "memory:", "conform", *arguments],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def _elsewhere(redbox: Redbox) -> None:
    """A directory whose pytest settings and conftest.py must be ignored."""
    Path("pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    Path("conftest.py").write_text("raise SystemExit('the conftest.py of another project')\n")


def test_it_runs_the_suite_and_prints_the_table():
    done = conform("--", "-q", "-k", ONE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    assert "conformance" in done.stdout
    assert [line.split()[0] for line in done.stdout.splitlines() if line.startswith("PL-2 ")] == ["PL-2"]
    assert {path.name for path in Path().iterdir()} == {"pytest.ini", "conftest.py"}


def test_as_json():
    done = conform("-k", ONE, as_json=True)
    assert json.loads(done.stdout) == {"url": "memory:", "passed": True, "tests": {"passed": 1}, "failures": []}
    assert done.returncode == 0


def test_running_no_test_is_a_failure():
    assert conform("-k", "there_is_no_such_test").returncode == 1


def test_without_the_extra(redbox: Redbox, monkeypatch: pytest.MonkeyPatch):
    original = builtins.__import__

    def refuse(name: str, *args: Any, **options: Any) -> Any:
        if name == "pytest":
            raise ImportError(name)
        return original(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
    assert "pip install 'redbox-outbox[testing]'" in redbox.error("conform", code=1)
