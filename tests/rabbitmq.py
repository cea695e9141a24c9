"""A RabbitMQ for tests: on free loopback ports, in a directory of its own, gone when its `with` block is.

The node is started directly, not by Debian's wrapper, which would switch to the user `rabbitmq` and its directories. It
has an epmd of its own, so that nodes of several test processes do not know each other, and nothing is left running.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.servers import do_without, free_port, poll

HOST = "127.0.0.1"
START_SECONDS = 90.0  # seven on an idle machine
PROGRAMS = Path("/usr/lib/rabbitmq/bin")


class Broker:
    """One node. `config` are lines of rabbitmq.conf."""

    def __init__(self, directory: Path, config: list[str]) -> None:
        self.dir = directory
        self.port, self._distribution, self._epmd_port = free_port(), free_port(), free_port()
        self._epmd: subprocess.Popen[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        (directory / "plugins").write_text("[].\n")
        (directory / "rabbitmq.conf").write_text("\n".join([f"listeners.tcp.1 = {HOST}:{self.port}", *config, ""]))

    @property
    def where(self) -> str:
        return f"{HOST}:{self.port}"

    def _environment(self) -> dict[str, str]:
        at = str(self.dir)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("RABBITMQ_")}
        return inherited | {
            "HOME": at,  # of the Erlang cookie
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": HOST,
            "ERL_CRASH_DUMP_SECONDS": "0",
            "RABBITMQ_NODENAME": f"redbox-{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(self._distribution),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": f"{at}/rabbitmq.conf",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{at}/plugins",
            "RABBITMQ_MNESIA_BASE": f"{at}/data",
            "RABBITMQ_LOG_BASE": f"{at}/log",
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_PID_FILE": f"{at}/pid",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} +S 2:2",
        }

    def start(self) -> None:
        with (self.dir / "server.log").open("ab") as log:
            begin = log.tell()
            if self._epmd is None:
                self._epmd = subprocess.Popen(
                    [shutil.which("epmd") or do_without("epmd is not installed: apt-get install erlang-base")],
                    env=self._environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
                poll(lambda: _listens(self._epmd_port), "epmd did not start")
            self._process = subprocess.Popen(
                [str(PROGRAMS / "rabbitmq-server")],
                cwd=self.dir,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a group of its own, to be ended as a whole
            )
        try:
            poll(lambda: self._is_up(begin), "RabbitMQ did not start", START_SECONDS)
        except BaseException as error:
            self.kill()
            said = (self.dir / "server.log").read_bytes()[begin:].decode(errors="replace")
            raise AssertionError(f"RabbitMQ did not start; its log says:\n{said[-4000:]}") from error

    def _is_up(self, begin: int) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"it ended with {self._process.returncode}")
        said = (self.dir / "server.log").read_bytes()[begin:]
        return b"Server startup complete" in said and _listens(self.port)

    def ctl(self, *arguments: str) -> str:
        """Runs rabbitmqctl; takes some seconds."""
        command = [str(PROGRAMS / "rabbitmqctl"), "-q", "-n", self._environment()["RABBITMQ_NODENAME"], *arguments]
        done = subprocess.run(
            command, env=self._environment(), capture_output=True, text=True, timeout=60, check=False, cwd=self.dir
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def pause(self) -> None:
        """The broker does not answer any more, but its connections stay open."""
        self._signal(signal.SIGSTOP)
        node = Path("/proc") / (self.dir / "pid").read_text().strip() / "stat"
        poll(lambda: node.read_text().rpartition(")")[2].split()[0] == "T", "the broker did not stop")

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it as a power cut would."""
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        """To the shell of the node, the node, and the programs that it started."""
        assert self._process is not None
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def restart(self) -> None:
        self.kill()
        self.start()

    def end(self) -> None:
        self.kill()
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


@contextmanager
def broker(*config: str) -> Iterator[Broker]:
    """A RabbitMQ from the system's packages. `config` are further lines of rabbitmq.conf."""
    if not (PROGRAMS / "rabbitmq-server").exists():
        do_without("rabbitmq-server is not installed: apt-get install rabbitmq-server")
    directory = Path(tempfile.mkdtemp(prefix="redbox-rabbitmq-"))
    server = Broker(directory, list(config))
    try:
        server.start()
        yield server
    finally:
        server.end()
        shutil.rmtree(directory, ignore_errors=True)
