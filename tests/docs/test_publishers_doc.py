"""Runs the publisher and its tests that docs/publishers.md shows, and compares its tables with the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from redbox.publishers.registry import SCHEMES, option_names
from tests.docs.test_readme import environment

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "publishers.md").read_text()
FILES = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", TEXT, re.DOTALL))


URLS = {"https and http": "https://host/", "amqp": "amqp://host/", "redis+stream": "redis+stream://host:1/0/shop"}
DEFECTS = {
    "no partition key": ('"key": event.partition_key', '"key": None'),
    "no headers": ("passed_on(claim)", "{}"),
    "an outage is a success": ("[Unavailable(str(error))]", "[None]"),
}


def run_contract(path: Path, publisher: str) -> subprocess.CompletedProcess[str]:
    (path / "sqs_redbox.py").write_text(publisher)
    (path / "test_sqs.py").write_text(FILES["test_sqs.py"])
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "-p", "no:xdist", "."]
    return subprocess.run(
        command, cwd=path, env=environment(), capture_output=True, text=True, timeout=100, check=False
    )


def test_the_publisher_of_the_example_passes_the_contract(tmp_path: Path):
    done = run_contract(tmp_path, FILES["sqs_redbox.py"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout
    found = re.search(r"(\d+) passed", done.stdout)
    assert found
    assert int(found[1]) >= 20


@pytest.mark.parametrize("defect", DEFECTS)
def test_the_contract_notices_a_defect_of_the_example(tmp_path: Path, defect: str):
    old, new = DEFECTS[defect]
    assert FILES["sqs_redbox.py"].count(old) == 1
    done = run_contract(tmp_path, FILES["sqs_redbox.py"].replace(old, new))
    assert done.returncode == 1, done.stdout + done.stderr


def test_every_scheme_is_in_the_table_of_targets():
    table = TEXT.partition("| URL | acknowledged by |")[2].partition("\n\n")[0]
    missing = [scheme for scheme in SCHEMES if f"`{scheme}:" not in table and scheme != "rediss+stream"]
    assert missing == []


@pytest.mark.parametrize("title", URLS)
def test_the_tables_of_options(title: str):
    section = TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    table = section.partition("| option | default |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` ", table, re.MULTILINE) == option_names(URLS[title])
