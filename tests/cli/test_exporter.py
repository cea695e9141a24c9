"""`redbox exporter` as a process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request

import pytest

from tests.cli.conftest import Redbox
from tests.servers import valkey_binary

REDBOX = [sys.executable, "-m", "redbox"]


@pytest.mark.req("RO-5")
@pytest.mark.timeout(90)
def test_it_serves_all_boxes_until_a_signal(redbox: Redbox):
    valkey_binary()
    for box in ("orders", "users"):
        put = [*REDBOX, "--url", "embedded:./data", "--box", box, "put", "a"]
        subprocess.run(put, check=True, capture_output=True, timeout=60)
    command = [*REDBOX, "--url", "embedded:./data", "--json", "exporter", "--port", "0", "--all-boxes"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            url = json.loads(process.stderr.readline())["url"]
            with urllib.request.urlopen(url, timeout=30) as reply:
                text = reply.read().decode()
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    for box in ("orders", "users"):
        assert f'redbox_phase{{box="{box}",phase="AVAILABLE",store="embedded:./data"}} 1.0' in text
        assert f'redbox_relays_alive{{box="{box}",store="embedded:./data"}} 0.0' in text


def test_a_port_in_use_is_reported(redbox: Redbox):
    message = redbox.error("exporter", "--port", "0", "--host", "not-an-address.invalid", code=1)
    assert message.endswith("choose another --host")
