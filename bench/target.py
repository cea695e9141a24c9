"""The targets that contenders publish to: nginx, which answers 204 to everything, and the brokers."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tests.kafka_cluster import KafkaCluster
from tests.nats_server import nats_server
from tests.rabbitmq import broker

PATIENCE = 10.0
CONFIGURATION = """
daemon off;
master_process off;
pid {place}/pid;
error_log {place}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  keepalive_requests 10000000;
  client_body_temp_path {place}/body;
  proxy_temp_path {place}/proxy;
  fastcgi_temp_path {place}/fastcgi;
  uwsgi_temp_path {place}/uwsgi;
  scgi_temp_path {place}/scgi;
  server {{ listen 127.0.0.1:{port}; location / {{ return 204; }} }}
}}
"""


class NoTarget(Exception):
    """The program of a target is not installed, or does not start."""


@contextmanager
def http_target() -> Iterator[str]:
    """The URL of an nginx that runs during the block: one process on a free port, without root."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        raise NoTarget("nginx is not installed: apt-get install nginx-light")
    with tempfile.TemporaryDirectory(prefix="redbox-bench-") as place:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        file = Path(place) / "nginx.conf"
        file.write_text(CONFIGURATION.format(place=place, port=port))
        command = [program, "-e", f"{place}/error.log", "-p", place, "-c", str(file)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603  # our own
        try:
            _wait_for(process, port)
            yield f"http://127.0.0.1:{port}/hook"
        finally:
            process.terminate()
            process.wait()


def _wait_for(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.01)
        else:
            return
    raise NoTarget("nginx did not start")


@contextmanager
def rabbitmq() -> Iterator[str]:
    """The URL of a RabbitMQ, without a vhost."""
    with broker() as node:
        yield f"amqp://guest:guest@{node.where}"


@contextmanager
def nats() -> Iterator[str]:
    with nats_server() as server:
        yield server.url


@contextmanager
def kafka() -> Iterator[str]:
    """The URL of librdkafka's mock cluster: it speaks the protocol of Kafka, and keeps records in memory."""
    cluster = KafkaCluster()
    try:
        yield cluster.url
    finally:
        cluster.close()


TARGETS: dict[str, Callable[[], AbstractContextManager[str]]] = {
    "http": http_target,
    "rabbitmq": rabbitmq,
    "nats": nats,
    "kafka": kafka,
}
