"""`/metrics`, `/livez` and `/readyz`: of a relay, of the exporter and of the service.

`/metrics` is for Prometheus. `/livez` reports that the process is alive, without a call of the store. `/readyz` reports
whether every relay runs and its store answers; `/healthz` is another name for it.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from redbox.box import Box
from redbox.errors import RedboxError
from redbox.relay import Relay, metrics
from redbox.relay.metrics import STORE_SECONDS
from redbox.service.headers import with_security

PATHS: Final = ("/metrics", "/livez", "/readyz", "/healthz")
JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
ALIVE: Final = b'{"status":"ok"}\n'
FRESH_SECONDS: Final = 1.0  # how long a reading of the store is used for further requests


class Health(ABC):
    """What is served."""

    @abstractmethod
    async def metrics(self) -> str:
        """The text of /metrics."""

    @abstractmethod
    async def health(self) -> tuple[bool, dict[str, Any]]:
        """Whether /readyz reports success, and its report."""


class HealthApp:
    """An ASGI application that serves health and metrics, and nothing else."""

    def __init__(self, source: Health) -> None:
        self._source = source

    async def __call__(self, scope: Any, _: Any, send: Any) -> None:
        assert scope["type"] == "http"
        status, content_type, body = await self._answer(scope["method"], scope["path"])
        headers = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode())]
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            headers.append((b"allow", b"GET, HEAD"))
        await send({"type": "http.response.start", "status": int(status), "headers": with_security(headers)})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, method: str, path: str) -> tuple[HTTPStatus, str, bytes]:
        if path not in PATHS:
            return HTTPStatus.NOT_FOUND, TEXT, f"the paths are {', '.join(PATHS)}\n".encode()
        if method not in ("GET", "HEAD"):
            return HTTPStatus.METHOD_NOT_ALLOWED, TEXT, b"use GET\n"
        if path == "/metrics":
            return HTTPStatus.OK, metrics.CONTENT_TYPE, (await self._source.metrics()).encode()
        if path == "/livez":
            return HTTPStatus.OK, JSON, ALIVE
        healthy, report = await self._source.health()
        status = HTTPStatus.OK if healthy else HTTPStatus.SERVICE_UNAVAILABLE
        return status, JSON, msgspec.json.encode(report) + b"\n"


class RelayHealth(Health):
    """The metrics and the health of relays."""

    def __init__(self, relays: Sequence[Relay]) -> None:
        self._relays = relays

    async def metrics(self) -> str:
        return await metrics.scrape(self._relays)

    async def health(self) -> tuple[bool, dict[str, Any]]:
        return await health(self._relays)


class StoreCheck:
    """Whether the store of a box runs a script. It is asked at most once per second."""

    def __init__(self, box: Box) -> None:
        self._box = box
        self._asking = asyncio.Lock()
        self._problem, self._asked_at = "", float("-inf")

    async def problem(self) -> str:
        """Why it does not; empty if it does."""
        async with self._asking:
            if time.monotonic() - self._asked_at >= FRESH_SECONDS:
                self._problem = await _problem_of(self._box.stats())
                self._asked_at = time.monotonic()
            return self._problem


async def health(relays: Sequence[Relay]) -> tuple[bool, dict[str, Any]]:
    """Whether all relays run and their stores answer, with a report on each relay.

    An open breaker is reported, but counts as healthy: the target is down, not the relay.
    """
    problems = await asyncio.gather(*(_problem(relay) for relay in relays))
    reports = [
        {
            "box": relay.box.name,
            "relay": relay.name,
            "target": relay.target,
            "problem": problem or None,
            "breaker": relay.circuit.value,
            "breaker_reason": relay.summary().open or None,
            "in_flight": relay.in_flight,
        }
        for relay, problem in zip(relays, problems, strict=True)
    ]
    healthy = not any(problems)
    return healthy, {"status": "ok" if healthy else "failing", "relays": reports}


async def _problem(relay: Relay) -> str:
    return await _problem_of(relay.box.settings()) if relay.running else "the relay is not running"


async def _problem_of(call: Any) -> str:
    try:
        async with asyncio.timeout(STORE_SECONDS):
            await call
    except RedboxError as error:
        return str(error)
    except TimeoutError:
        return f"the store did not answer within {STORE_SECONDS:g} s"
    return ""
