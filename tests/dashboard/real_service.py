"""`redbox up` as a process of its own, and a target that can be switched to fail."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, Self
from urllib.request import Request, urlopen

ROOT: Final = Path(__file__).parents[2]
START_SECONDS: Final = 30


class Target:
    """An HTTP server on this machine. It answers 204, and 422 with the text of `refusals` for an event whose type is
    there."""

    def __init__(self) -> None:
        target = self
        self.refusals: dict[str, str] = {}
        self.received: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                kind = self.headers["ce-type"]
                text = target.refusals.get(kind, "").encode()
                if not text:
                    target.received.append(self.headers["ce-id"])
                self.send_response(422 if text else 204)
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Up:
    """A running `redbox up` with an embedded store in `directory`."""

    def __init__(self, directory: Path, target: Target, *options: str) -> None:
        self.directory = directory
        self.target = target
        self._log = (directory / "up.log").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "redbox", "--box", "orders", "up", "--to", target.url, "--port", "0", *options],
            cwd=directory, stdout=self._log, stderr=self._log,
            env={**os.environ, "PYTHONPATH": str(ROOT), "REDBOX_URL": ""},
        )  # fmt: skip
        self.url = self._started()

    def _started(self) -> str:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            found = re.search(r"redbox is up: (\S+)", self.log)
            if found:
                return found[1]
            time.sleep(0.05)
        raise AssertionError(self.log)

    @property
    def log(self) -> str:
        return (self.directory / "up.log").read_text()

    @property
    def store_pid(self) -> int:
        return int((self.directory / ".redbox" / "server.pid").read_text())

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """The answer of the service below /v1."""
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"{self.url}/v1/{path}", data, {"content-type": "application/json"}, method=method)
        with urlopen(request, timeout=20) as answer:
            return json.load(answer)

    def put(self, event_type: str, payload: Any = None, **fields: Any) -> str:
        """Puts an event; returns its id."""
        found: str = self.request("POST", "events", {"event_type": event_type, "payload": payload, **fields})[
            "event_id"
        ]
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError, FileNotFoundError):
            os.kill(self.store_pid, signal.SIGCONT)
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._log.close()
