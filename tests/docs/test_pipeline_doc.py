"""docs/pipeline.md: its story, run as printed in an empty directory; its schema; its examples."""

from __future__ import annotations

import csv
import json
import re
import subprocess
from pathlib import Path

import pytest

from redbox.pipeline.source.schema import SCHEMA
from redbox.store.embedded import server as embedded
from tests.docs.test_readme import environment
from tests.pipeline.conftest import java_is_missing
from tests.servers import valkey_binary

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "pipeline.md").read_text()
STORY = re.findall(r"```sh\n(.*?)```", TEXT.partition("## A story")[2].partition("\n## ")[0], re.DOTALL)
PYTHON = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.timeout(900)
@pytest.mark.skipif(bool(java_is_missing()), reason=java_is_missing())
@pytest.mark.req("SP-5", "SP-6", "SP-7", "SP-8", "SP-9")
@pytest.mark.campaign
def test_the_story_as_printed(tmp_path: Path):
    valkey_binary()
    done = subprocess.run(
        ["bash", "-e", "-c", "\n".join(STORY)],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=880, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    told = done.stdout
    assert "600 of 600 rows put" in told
    assert "200 of 200 dead events would be patched" in told
    assert "200 of 200 dead events patched" in told
    assert "800 events archived in" in told
    assert "600 of 600 events replayed, 600 of them were gone from Redis" in told
    assert "no problem; 600 events audited" in told
    assert "400 published, 200 dead" in done.stderr
    assert "amount must be a number" in (tmp_path / "report" / "report.html").read_text()
    with (tmp_path / "report" / "tables" / "causes.csv").open() as causes:
        assert [row["fingerprint"] for row in csv.DictReader(causes)] == ["amount must be a number, not <text>"]
    lake = [json.loads(path.read_text()) for path in (tmp_path / "lake/_redbox/runs").glob("*.json")]
    assert [manifest["rows"] for manifest in lake] == [800]
    assert embedded.wait_stopped(tmp_path / ".redbox")


def test_the_schema_is_documented_completely():
    table = TEXT.partition("## The schema")[2].partition("\n## ")[0]
    told = [name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)]
    assert told == SCHEMA.fieldNames()


@pytest.mark.parametrize("block", PYTHON, ids=range(len(PYTHON)))
def test_every_example_is_python(block: str):
    compile(block, "docs/pipeline.md", "exec")
