"""Fixtures of the conformance suite. A run provides `store`, a short name, and `store_url`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from redbox import Box, keys
from redbox.testing.plugin import new_box_name


async def remove(box: Box) -> None:
    """Deletes every key of a box, and closes it."""
    async with box:
        store = box._store
        for key in await (await store.exchanges.wire()).scan(f"{keys.prefix(box.name)}*"):
            await store.exchange([("UNLINK", key)])


@pytest.fixture
def open_box(store_url: str, redbox_runner: asyncio.Runner) -> Iterator[Callable[..., Box]]:
    """Opens boxes on the store, by default with a new name. They are removed after the test."""
    opened: list[Box] = []

    def open_one(name: str | None = None, **options: Any) -> Box:
        box = Box.open(store_url, name=name or new_box_name(), **options)
        opened.append(box)
        return box

    yield open_one

    async def clean() -> None:
        for box in opened:
            await box.aclose()
            if store_url != "memory:":  # a box in memory ends when it is closed
                await remove(Box.open(store_url, name=box.name))

    redbox_runner.run(clean())


@pytest.fixture
def box(open_box: Callable[..., Box]) -> Box:
    """A fresh box."""
    return open_box()


@pytest.fixture(autouse=True)
def _needs(request: pytest.FixtureRequest) -> None:
    """Skips a test if the store lacks a feature that it needs."""
    for mark in request.node.iter_markers("needs"):
        if "server" in mark.args and request.getfixturevalue("store_url").startswith("memory:"):
            pytest.skip("memory: has no server of its own to ask, restart or kill")
