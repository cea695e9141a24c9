"""`/metrics`, `/livez` and `/readyz`: of a relay, of the exporter and of the service.

`/metrics` is for Prometheus. `/livez` reports that the process is alive, without a call of the store. `/readyz` reports
whether every relay runs and its store answers, and whether the store of a service accepts puts; `/healthz` is another
name for it.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import msgspec

from redbox.box import Box
from redbox.errors import NotPermitted, RedboxError
from redbox.relay import Relay, metrics
from redbox.relay.metrics import STORE_SECONDS
from redbox.service.http.headers import with_security

PATHS: Final = ("/metrics", "/livez", "/readyz", "/healthz")
JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
ALIVE: Final = b'{"status":"ok"}\n'
_Place = tuple[str, str]  # a server, and a box of it: two connections of one box are asked once
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
    """The metrics and the health of relays. An open breaker is reported, but counts as healthy: the target is down, not
    the relay."""

    def __init__(self, relays: Sequence[Relay], box: Box | None = None) -> None:
        """`box`: the box of a service, whose store has to accept puts; its problem is reported beside those of the
        relays."""
        self._relays = relays
        self._puts = _Checks({} if box is None else {_place(box): partial(_check_puts, box)})
        self._is_service = box is not None
        self._stores = _Checks({_place(relay.box): partial(_read, relay.box) for relay in relays})

    async def metrics(self) -> str:
        return await metrics.scrape(self._relays)

    async def health(self) -> tuple[bool, dict[str, Any]]:
        answers, puts = await asyncio.gather(self._stores.problems(), self._puts.problems())
        problems = [
            answers[_place(relay.box)] if relay.running else "the relay is not running" for relay in self._relays
        ]
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
            for relay, problem in zip(self._relays, problems, strict=True)
        ]
        own = "; ".join(filter(None, puts.values()))
        healthy = not own and not any(problems)
        report = {"problem": own or None} if self._is_service else {}
        return healthy, {"status": "ok" if healthy else "failing", **report, "relays": reports}


class _Checks:
    """Calls of stores, one for each box. Each is made at most once per second, however many callers wait."""

    def __init__(self, calls: Mapping[_Place, Callable[[], Awaitable[Any]]]) -> None:
        self._calls = calls
        self._asking = asyncio.Lock()
        self._problems: dict[_Place, str] = {}
        self._asked_at = float("-inf")

    async def problems(self) -> dict[_Place, str]:
        """Why each call fails; empty texts if it does not."""
        async with self._asking:
            if time.monotonic() - self._asked_at >= FRESH_SECONDS:
                found = await asyncio.gather(*map(_problem, self._calls.values()))
                self._problems = dict(zip(self._calls, found, strict=True))
                self._asked_at = time.monotonic()
            return self._problems


def _place(box: Box) -> _Place:
    return box.where, box.name


async def _read(box: Box) -> None:
    await box.stats()


async def _check_puts(box: Box) -> None:
    """As `Desk.check_puts`. A user without the permission to put may still serve the dashboard."""
    try:
        await box.desk.check_puts()
    except NotPermitted:
        await box.stats()


async def _problem(call: Callable[[], Awaitable[Any]]) -> str:
    try:
        async with asyncio.timeout(STORE_SECONDS):
            await call()
    except RedboxError as error:
        return str(error)
    except TimeoutError:
        return f"the store did not answer within {STORE_SECONDS:g} s"
    return ""
