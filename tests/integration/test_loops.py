"""A box that is used on one event loop after another: what belongs to a loop is forgotten with it."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from redbox import Box, Event, Relay, UsageError
from redbox.publishers.base import Publisher
from redbox.publishers.registry import open_publisher
from redbox.testing.plugin import new_box_name
from tests import servers

# Python reports sockets and tasks that were left when their loop was closed.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited"),
]
LIMIT = 10.0


@pytest.fixture(autouse=True)
def _collected(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.CRITICAL, "asyncio")  # tasks that were destroyed
    yield
    gc.collect()


def leave(work: Coroutine[Any, Any, Any], turns: int) -> None:
    """Begins some work on a new event loop, and closes that loop after a few turns."""
    loop = asyncio.new_event_loop()

    async def begin() -> asyncio.Task[Any]:
        return asyncio.create_task(work)

    task = loop.run_until_complete(begin())
    for _ in range(turns):
        loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    del task


def on_a_new_loop(work: Coroutine[Any, Any, Any]) -> Any:
    async def limited() -> Any:
        async with asyncio.timeout(LIMIT):
            return await work

    return asyncio.run(limited())


@pytest.mark.parametrize("turns", [0, 1, 2, 4, 8])
@pytest.mark.parametrize("known", [True, False], ids=["connected", "new"])
def test_a_put_after_one_that_its_loop_left(store_url: str, turns: int, known: bool):
    box = Box.open(store_url, name=new_box_name())
    if known:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(box.put(Event("n")))
        loop.close()
    leave(box.put(Event("n")), turns)
    event = Event("n", ordering_key="k")
    assert on_a_new_loop(box.put(event)).created
    gc.collect()  # what the closed loop left is ended now, and must not disturb what came after it
    assert on_a_new_loop(box.get(event.event_id)) is not None
    assert on_a_new_loop(box.put(Event("n"))).created
    on_a_new_loop(box.aclose())


def test_closing_after_a_put_that_its_loop_left(redis_url: str):
    box = Box.open(redis_url, name=new_box_name())
    leave(box.put(Event("n")), 3)
    gc.collect()
    on_a_new_loop(box.aclose())


def test_a_put_in_flight_on_a_loop_that_lives_is_not_disturbed(redis_url: str):
    box = Box.open(redis_url, name=new_box_name())
    first = asyncio.new_event_loop()
    putting = first.create_task(box.put(Event("n")))
    first.run_until_complete(asyncio.sleep(0))
    with pytest.raises(UsageError, match="another event loop"):
        on_a_new_loop(box.put(Event("n")))
    assert first.run_until_complete(putting).created
    first.run_until_complete(box.aclose())
    first.close()


def test_a_relay_after_one_that_its_loop_left(redis_url: str):
    published: list[str] = []

    async def publish(event: Event) -> None:
        published.append(event.event_id)

    box = Box.open(redis_url, name=new_box_name())
    relay = Relay(box, publish)
    leave(relay.run(), 20)
    on_a_new_loop(box.put(Event("n", event_id="later")))
    on_a_new_loop(relay.drain())
    gc.collect()
    assert published == ["later"]
    assert not relay.running
    on_a_new_loop(box.aclose())


def test_a_wait_that_its_loop_left_takes_no_event():
    """The claim behind the wait would otherwise be carried out for a relay that is gone."""
    published: list[str] = []

    async def publish(event: Event) -> None:
        published.append(event.event_id)

    with servers.redis_server() as server, server.client() as client:
        box = Box.open(server.url, name=new_box_name())
        loop = asyncio.new_event_loop()
        task = loop.create_task(Relay(box, publish).run())
        deadline = time.monotonic() + LIMIT
        while not client.info("clients")["blocked_clients"]:
            assert time.monotonic() < deadline, "the relay does not wait"
            loop.run_until_complete(asyncio.sleep(0.01))
        loop.close()
        on_a_new_loop(box.put(Event("n", event_id="later")))
        on_a_new_loop(Relay(box, publish).drain())
        assert published == ["later"]
        del task
        gc.collect()
        on_a_new_loop(box.aclose())


@pytest.mark.parametrize("kind", ["stdout:", "http", "stream"])
def test_a_publisher_after_one_that_its_loop_left(kind: str, redis_url: str, tmp_path: Path, capfd: Any):
    """Places and turns that were taken on the closed loop are free again."""
    del tmp_path, capfd
    target = {"http": "http://127.0.0.1:9/?max_connections=1", "stream": f"redis+stream{redis_url[5:]}/left"}.get(
        kind, kind
    )
    publisher: Publisher = open_publisher(target)

    def places() -> Any:
        of_http = getattr(publisher, "_client", None)
        return of_http._slots if of_http else getattr(publisher, "_turn", None) or publisher._slots  # type: ignore[attr-defined]

    async def hold() -> None:
        await publisher.open("box")
        taken = places()
        while not taken.locked():
            await taken.acquire()
        await asyncio.sleep(LIMIT)

    leave(hold(), 300)

    async def use() -> None:
        await publisher.open("box")
        assert not places().locked()
        await publisher.aclose()

    on_a_new_loop(use())
