"""A real nats-server for tests: on a free loopback port, in a directory of its own, ended by its process id."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import nats
from nats.js import JetStreamContext

from tests import servers

#: Larger than the default of 1 MiB, which covers the headers too.
MAX_PAYLOAD = 8 * 2**20


class NATSServer:
    """One server. `config` is the rest of its configuration file, as JSON, which its format includes."""

    host = "127.0.0.1"

    def __init__(self, port: int, directory: Path, *, jetstream: bool, config: dict[str, Any]) -> None:
        self.port = port
        self.dir = directory
        self.process: subprocess.Popen[bytes] | None = None
        found: dict[str, Any] = {"host": self.host, "port": port, "max_payload": MAX_PAYLOAD, **config}
        if jetstream:
            found["jetstream"] = {"store_dir": str(directory / "store"), "max_file": 2**28, "max_mem": 2**27}
        self._file = directory / "server.conf"
        self._file.write_text(json.dumps(found))

    @property
    def url(self) -> str:
        return f"nats://{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, "the server was never started"
        return self.process.pid

    def start(self) -> None:
        (self.dir / "pid").unlink(missing_ok=True)
        with (self.dir / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [_binary(), "-c", str(self._file), "--ports_file_dir", str(self.dir), "-P", str(self.dir / "pid")],
                cwd=self.dir,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            servers.poll(self._is_up, "nats-server did not start")
        except BaseException as error:
            self.kill()
            said = (self.dir / "server.log").read_text(errors="replace")
            if "address already in use" in said:
                raise servers.PortTakenError(self.port) from error
            raise AssertionError(f"nats-server did not start; its log says:\n{said}") from error

    def _is_up(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise RuntimeError(f"it ended with {self.process.returncode}")
        # Written once the server listens; its name has the process id.
        return (self.dir / f"nats-server_{self.process.pid}.ports").exists()

    def stop(self) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Ends it as a power cut would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@contextmanager
def nats_server(*, jetstream: bool = True, **config: Any) -> Iterator[NATSServer]:
    directory = Path(tempfile.mkdtemp(prefix="redbox-test-"))
    try:
        server = _started(directory, jetstream, config)
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _started(directory: Path, jetstream: bool, config: dict[str, Any]) -> NATSServer:
    for _ in range(10):
        server = NATSServer(servers.free_port(), directory, jetstream=jetstream, config=config)
        try:
            server.start()
        except servers.PortTakenError:
            continue
        return server
    raise AssertionError("ten free ports in a row were taken before the server could listen on them")


def _binary() -> str:
    return shutil.which("nats-server") or servers.do_without(
        "nats-server is not installed: apt-get install nats-server"
    )


@asynccontextmanager
async def jetstream(url: str, **options: Any) -> AsyncIterator[JetStreamContext]:
    """A client that looks behind redbox's back."""
    client = await nats.connect(url, **options)
    try:
        yield client.jetstream()
    finally:
        await client.close()


async def stored(js: JetStreamContext, stream: str) -> list[Any]:
    """The messages of a stream, oldest first, as a consumer receives them."""
    info = await js.stream_info(stream)
    subjects = info.config.subjects or []
    if not info.state.messages:
        return []
    subscription = await js.subscribe(subjects[0], stream=stream, ordered_consumer=True)
    try:
        return [await subscription.next_msg(10) for _ in range(info.state.messages)]
    finally:
        await subscription.unsubscribe()
