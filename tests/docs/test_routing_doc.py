"""Runs docs/routing.md as printed."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from redbox.store.embedded import server as embedded
from tests.docs.test_readme import environment
from tests.servers import valkey_binary

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "routing.md").read_text()


@pytest.mark.req("RT-2")
@pytest.mark.timeout(120)
def test_from_one_box_to_two_destinations(tmp_path: Path):
    valkey_binary()
    (tmp_path / "redbox.toml").write_text(re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)[0])
    printed = ""
    for command in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)[0].strip().splitlines():
        done = subprocess.run(
            command,
            shell=True,
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, (command, done.stderr)
        printed += done.stdout
    assert "order.* → box:billing" in printed
    delivered = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    assert [(each["event_type"], each["payload"]) for each in delivered] == [("order.paid", {"id": 42})]
    for box in ("billing", "orders", "search"):
        assert re.search(rf"\b{box}\b", done.stdout)
    assert embedded.wait_stopped(tmp_path / ".redbox")


def test_the_python_compiles():
    (program,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    compile(program, "routing.md", "exec")
    assert "Routes(" in program
