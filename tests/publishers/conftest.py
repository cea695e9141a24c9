"""Fixtures for publishers. Tests do not use the proxy of the machine they run on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from redbox.publishers import Publisher
from redbox.publishers.registry import open_publisher


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http", "https", "all", "no"):
        monkeypatch.delenv(f"{name}_proxy", raising=False)
        monkeypatch.delenv(f"{name}_proxy".upper(), raising=False)


@asynccontextmanager
async def opened(target: Any, **options: Any) -> AsyncIterator[Publisher]:
    """An open publisher."""
    publisher = open_publisher(target, **options)
    await publisher.open("orders")
    try:
        yield publisher
    finally:
        await publisher.aclose()
