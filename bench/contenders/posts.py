"""How long single requests take, and the headers that every client sends."""

from __future__ import annotations

import time

#: Like redbox's, so that all requests have the same size.
HEADERS = {
    "User-Agent": "redbox/0.1.0",
    "Accept-Encoding": "identity",
    "Content-Type": "application/octet-stream",
    "ce-specversion": "1.0",
    "ce-id": "0193a1e9-802b-7092-b205-7cc0c1af8d9a",
    "ce-type": "user.created",
    "ce-source": "/redbox/bench",
    "ce-time": "2026-01-01T00:00:00.000Z",
    "redbox-claim": "10000",
    "redbox-attempt": "1",
}


class Posts:
    """Collects the duration of each request, in seconds."""

    def __init__(self) -> None:
        self._took: list[float] = []
        self.add = self._took.append

    def forget(self) -> None:
        """Drops the measurements of the warm-up."""
        self._took.clear()

    def figures(self) -> dict[str, float]:
        took = sorted(self._took)
        return {
            "p50_ms": round(took[len(took) // 2] * 1000, 3),
            "p99_ms": round(took[len(took) * 99 // 100] * 1000, 3),
        }


now = time.perf_counter
