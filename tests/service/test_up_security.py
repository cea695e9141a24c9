"""`redbox up` and `redbox serve` as processes: who may reach them, and what they print."""

from __future__ import annotations

import base64
import http.client
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests import servers
from tests.service.exchange import EVENT, INGEST, LINES, OPERATE, READ

pytestmark = [pytest.mark.req("SF-5"), pytest.mark.timeout(90)]

REDBOX = [sys.executable, "-m", "redbox"]
ROTATED = "rotated-" + "n" * 32


class Running:
    """A process; `output` is all that it has printed and logged, once it has ended."""

    def __init__(self, process: subprocess.Popen[str], address: str, log: Path) -> None:
        self.process = process
        self.address = urlsplit(address)
        self._log = log

    @property
    def output(self) -> str:
        return self._log.read_text()

    def ask(self, method: str, path: str, body: bytes | None = None, token: str | None = None) -> int:
        assert self.address.hostname is not None
        connection = http.client.HTTPConnection(self.address.hostname, self.address.port, timeout=20)
        connection.request(method, path, body, {} if token is None else {"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        response.read()
        connection.close()
        return response.status


@contextmanager
def running(folder: Path, *arguments: str, **environment: str) -> Iterator[Running]:
    log = folder / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [*REDBOX, *arguments],
            stdout=output,
            stderr=output,
            text=True,
            cwd=folder,
            env={**os.environ, **environment},
        )
        try:
            yield Running(process, _address(process, log), log)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def _address(process: subprocess.Popen[str], log: Path) -> str:
    until = time.monotonic() + 40
    while time.monotonic() < until and process.poll() is None:
        for line in log.read_text().splitlines():
            if "redbox is up: " in line:
                return line.partition("redbox is up: ")[2]
        time.sleep(0.05)
    raise AssertionError(log.read_text())


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.touch(0o600)
    path.write_text(LINES)
    return path


def test_without_tokens_only_this_machine_reaches_it(tmp_path: Path):
    environment = {name: value for name, value in os.environ.items() if name != "REDBOX_TOKENS"}
    for host in ("0.0.0.0", "192.0.2.1"):
        done = subprocess.run(
            [*REDBOX, "--url", "memory:", "serve", "--port", "0", "--host", host],
            capture_output=True, check=False, text=True, cwd=tmp_path, timeout=60, env=environment,
        )  # fmt: skip
        assert done.returncode == 2
        assert f"--host {host}: without tokens, the service listens on 127.0.0.1 only" in done.stderr
        assert "--token-file FILE or $REDBOX_TOKENS" in done.stderr
    with running(tmp_path, "--url", "memory:", "serve", "--port", "0", "--host", "localhost") as service:
        assert service.ask("POST", "/v1/events", EVENT) == 202
        assert service.ask("GET", "/") == 200
    assert "there are no tokens: everyone on this machine may use it" in service.output
    assert f"dashboard: {service.address.geturl()}/\n" in service.output
    assert "without TLS" not in service.output


def test_with_tokens_it_may_be_reached_by_others(tmp_path: Path, token_file: Path):
    command = ("--url", "memory:", "serve", "--port", "0", "--host", "0.0.0.0")
    with running(tmp_path, *command, "--token-file", str(token_file)) as service:
        assert service.ask("POST", "/v1/events", EVENT) == 401
        assert service.ask("POST", "/v1/events", EVENT, INGEST) == 202
        assert service.address.hostname == "127.0.0.1", "an address that can be used"
    assert "everyone" not in service.output
    assert "without TLS, tokens and events are readable on the network" in service.output
    with running(tmp_path, *command, REDBOX_TOKENS=LINES) as service:
        assert service.ask("GET", "/v1", token=READ) == 200


def test_an_open_token_file_is_refused_at_the_start(tmp_path: Path, token_file: Path):
    token_file.chmod(0o644)
    command = [*REDBOX, "--url", "memory:", "serve", "--port", "0", "--token-file", str(token_file)]
    done = subprocess.run(command, capture_output=True, check=False, text=True, cwd=tmp_path, timeout=60)
    assert done.returncode == 2
    assert f"chmod 600 {token_file}" in done.stderr


def test_a_hangup_reads_the_tokens_again(tmp_path: Path, token_file: Path):
    with running(tmp_path, "--url", "memory:", "serve", "--port", "0", "--token-file", str(token_file)) as service:
        assert service.ask("GET", "/v1", token=ROTATED) == 401
        token_file.write_text(LINES + f"viewer read {ROTATED}\n")
        service.process.send_signal(signal.SIGHUP)
        until = time.monotonic() + 20
        while "tokens read again" not in service.output and time.monotonic() < until:
            time.sleep(0.05)
        assert service.ask("GET", "/v1", token=ROTATED) == 200
        assert service.ask("GET", "/v1", token=READ) == 200  # both are valid
    assert "tokens read again: alice, shop, viewer" in service.output


def test_a_target_that_deny_private_rules_out_is_refused_at_the_start(tmp_path: Path):
    command = [*REDBOX, "--url", "memory:", "up", "--port", "0", "--to", "http://10.0.0.1/hook", "--deny-private"]
    done = subprocess.run(command, capture_output=True, check=False, text=True, cwd=tmp_path, timeout=60)
    assert done.returncode == 2
    assert "'--to': its address 10.0.0.1 is not public" in " ".join(done.stderr.split())


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_secret_is_printed_or_logged(tmp_path: Path, token_file: Path, form: str):
    """Tokens, the login and the token of a URL, the key of signatures, and the password of the store."""
    key = base64.b64encode(b"signing-key-of-the-webhooks-").decode()
    password, login, path_token = "store-password", "target-password", "T0kenXq8Zr1Pw7Ls"
    with servers.redis_server() as redis:
        client = redis.client()
        client.config_set("requirepass", password)
        client.close()
        parts = urlsplit(redis.url)
        url = f"redis://:{password}@{parts.hostname}:{parts.port}/0"
        target = f"http://user:${{LOGIN}}@127.0.0.1:1/hooks/{path_token}?key=query-secret"
        command = [
            "--debug", "up", "--to", target, "-o", "secret=${HOOK_SECRET}", "--port", "0", "--log", form,
            "--token-file", str(token_file), "--retry", "fixed:10ms", "--attempts", "2", "--no-breaker",
        ]  # fmt: skip
        environment = {
            "REDBOX_URL": url, "LOGIN": login, "HOOK_SECRET": f"whsec_{key}", "REDBOX_TOKENS": f"ci read {ROTATED}",
        }  # fmt: skip
        with running(tmp_path, *command, **environment) as service:
            for token in (INGEST, READ, OPERATE, ROTATED, "guess-" + "g" * 32, None):
                service.ask("POST", "/v1/events", EVENT, token)
                service.ask("GET", f"/v1?access_token={READ}", token=token)
                for path in ("/v1", "/metrics", "/readyz", f"/v1/boxes/{READ}/stats", "/v1/boxes/default/why"):
                    service.ask("GET", path, token=token)
            token_file.write_text(f"broken line with {OPERATE}x\n")
            service.process.send_signal(signal.SIGHUP)
            until = time.monotonic() + 20
            while "were not read again" not in service.output and time.monotonic() < until:
                time.sleep(0.05)
            assert service.ask("GET", "/v1", token=READ) == 200
            events = _dead_events(service)
        secrets = [
            INGEST, READ, OPERATE, ROTATED, "g" * 32, key, password, login, path_token, "query-secret",
            base64.b64encode(f"user:{login}".encode()).decode(),
        ]  # fmt: skip
        assert "were not read again" in service.output
        assert events
        for secret in secrets:
            assert secret not in service.output
            assert secret not in events


def _dead_events(service: Running) -> str:
    """The dead events as the service shows them, once there are some."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        connection = http.client.HTTPConnection("127.0.0.1", service.address.port, timeout=20)
        connection.request("GET", "/v1/boxes/default/events?state=DEAD", headers={"Authorization": f"Bearer {READ}"})
        text = connection.getresponse().read().decode()
        connection.close()
        if json.loads(text).get("events"):
            return text
        time.sleep(0.05)
    return ""


@pytest.mark.parametrize(("files", "clients"), [(64, 200), (1024, 1100)])
@pytest.mark.parametrize("start", [b"", b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nX: "])
def test_connections_beyond_the_limit_of_open_files_do_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int, clients: int, start: bytes
):
    monkeypatch.setattr(f"{__name__}.REDBOX", ["sh", "-c", f'ulimit -n {files}; exec "$0" "$@"', *REDBOX])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(4096, hard)), hard))
    batch = b"[" + b",".join([EVENT] * 100) + b"]"
    try:
        with running(tmp_path, "up", "--to", "null:", "--port", "0") as up, ExitStack() as opened:
            where = (up.address.hostname, up.address.port)
            for _ in range(clients):
                with suppress(ConnectionError):
                    client = opened.enter_context(socket.create_connection(where, 20))
                    client.sendall(start)
            answers: Counter[int] = Counter()
            for _ in range(20):
                with suppress(ConnectionError, http.client.HTTPException):
                    answers[up.ask("POST", "/v1/events:batch", batch)] += 1
            assert set(answers) <= {202, 503}, answers
            assert answers[202]
            opened.close()
            assert up.ask("POST", "/v1/events", EVENT) == 202
            assert up.process.poll() is None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert up.process.returncode == 0
    assert "Traceback" not in up.output
    assert f"this process may have {files} open files" in up.output
