"""Figures from the server's INFO, read over a bare socket, so that no library is needed or measured."""

from __future__ import annotations

import socket
import time
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit


def info(url: str, section: str) -> dict[str, str]:
    """One section of INFO."""
    where = urlsplit(url)
    with socket.create_connection((where.hostname, where.port), timeout=30) as connection:
        connection.sendall(f"INFO {section}\r\n".encode())
        with connection.makefile("rb") as reply:
            length = int(reply.readline()[1:])
            text = reply.read(length).decode()
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


def cpu_seconds(url: str) -> float:
    """The CPU time of the server since its start, including its background threads."""
    told = info(url, "cpu")
    return float(told["used_cpu_user"]) + float(told["used_cpu_sys"])


def used_memory(url: str) -> int:
    return int(info(url, "memory")["used_memory"])


class Stopwatch:
    """Measures its `with` block: elapsed time, CPU time of the server, and CPU time of this process."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> Self:
        self._server = cpu_seconds(self._url)
        self._client = time.process_time()
        self._began = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.seconds = time.perf_counter() - self._began
        self.client_seconds = time.process_time() - self._client
        self.server_seconds = cpu_seconds(self._url) - self._server

    def per(self, events: int) -> dict[str, float]:
        """The figures for this number of events."""
        return {
            "events": events,
            "seconds": round(self.seconds, 4),
            "rate": round(events / self.seconds, 1),
            "server_us": round(self.server_seconds / events * 1e6, 2),
            "client_us": round(self.client_seconds / events * 1e6, 2),
        }


def by_phase(events: int, **phases: Stopwatch) -> dict[str, float]:
    """The server's CPU time per event, by phase and in total."""
    each = {f"{name}_us": watch.per(events)["server_us"] for name, watch in phases.items()}
    return {"events": events, **each, "total_us": round(sum(each.values()), 2)}
