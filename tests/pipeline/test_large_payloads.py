"""Large payloads and a small heap: files are written and read in pieces that are bounded in bytes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from redbox import Event

from .conftest import Played

COUNT, SIZE = 120, 1024 * 1024
#: The least that Spark starts with. In proportion, these are 240 MiB with the default of 1 GiB.
HEAP = "512m"


def redbox(played: Played, *arguments: str) -> dict[str, Any]:
    """Runs `redbox pipeline` with a Spark of its own."""
    command = [
        sys.executable, "-m", "redbox", "--url", played.url, "--box", played.name, "--json", "pipeline", *arguments,
        "--master", "local[2]", "--conf", f"spark.driver.memory={HEAP}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.req("SP-5", "SP-6")
@pytest.mark.campaign
def test_large_payloads_go_through_a_small_heap(redis_played: Played, tmp_path: Path):
    """The vectorized reader would hold all of them at once, twice while it grows."""
    box, lake = redis_played.box, str(tmp_path / "lake")
    for first in range(0, COUNT, 20):
        events = [Event("n", os.urandom(SIZE), event_id=f"{first + each:03}") for each in range(20)]
        redis_played.run(box.put_many(events))
        while claims := redis_played.run(box.claim("relay", limit=20)):
            redis_played.run(box.ack(claims))
    assert redbox(redis_played, "archive", "--to", lake)["removed"] == COUNT
    assert redbox(redis_played, "replay", "--from", lake, "--all", "--yes")["restored"] == COUNT
