"""That redbox has not become slow: ratios to plain Redis Streams in the same run, with wide margins.

What is measured and how is the benchmark's (bench/README.md); here are fewer events, and less is asked for than there,
since a machine that runs tests is never quiet.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.question import SETTINGS
from tests import servers

CONTENDERS = Path(__file__).resolve().parents[2] / "bench" / "contenders"
ROUNDS = 4


def rate(script: str, question: str, events: int) -> float:
    """Events per second, on a fresh server."""
    with servers.redis_server(**SETTINGS) as server:
        command = [sys.executable, str(CONTENDERS / script), question, "--url", server.url, "--events", str(events)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
    return float(json.loads(done.stdout)["rate"])


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("question", "events", "at_least"),
    [
        ("put_one", 1000, 0.3),
        ("put_tasks", 4000, 1.2),
        ("put_bulk", 10_000, 0.3),
        ("drain", 10_000, 0.1),
    ],
)
def test_redbox_keeps_up_with_plain_streams(question: str, events: int, at_least: float):
    plain = redbox = 0.0
    for _ in range(ROUNDS):
        plain = max(plain, rate("with_plain.py", question, events))
        redbox = max(redbox, rate("with_redbox.py", question, events))
        if redbox / plain >= 2 * at_least:
            break  # far from the limit
    assert redbox / plain >= at_least, f"{redbox:,.0f} beside {plain:,.0f} events/s"
