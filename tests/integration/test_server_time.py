"""How long one script holds up the server, with the largest and the most hostile arguments that a caller may give.

The server measures it (SLOWLOG), and the fastest of several repetitions counts: other processes share the machine.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from redbox import Box, Event
from redbox.settings import BATCH_COUNT, MAX_PAYLOAD
from tests import servers

pytestmark = [pytest.mark.usefixtures("redbox_runner"), pytest.mark.timeout(120)]

LONGEST_MS = 20.0
REPETITIONS = 5
WIDE = 255  # characters of an event type, a key or a filter
SMILE = "\N{GRINNING FACE}"  # four bytes
ERROR = 2000  # characters of an error
ADA = {"who": "a" * WIDE, "why": "y" * ERROR}

Act = Callable[[], Awaitable[Any]]
Scene = Callable[[Box], Awaitable[Act]]
SCENES: dict[str, Scene] = {}


def scene(prepare: Scene) -> Scene:
    """What is measured: a function that prepares a box, and returns what is to be done in it."""
    SCENES[prepare.__name__] = prepare
    return prepare


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Server]:
    with servers.redis_server(slowlog_log_slower_than=0, slowlog_max_len=100_000) as started:
        yield started


async def longest(server: servers.Server, act: Act) -> float:
    """The longest script of an action, in ms of the server's time."""
    with server.client(decode_responses=False) as client:
        client.slowlog_reset()
        await act()
        calls = client.slowlog_get(100_000)
    return max(call["duration"] for call in calls if call["command"].startswith(b"EVAL")) / 1000


async def times(server: servers.Server, prepare: Scene) -> list[float]:
    taken = []
    for _ in range(REPETITIONS):
        async with Box.open(server.url, name=uuid4().hex) as box:
            taken.append(await longest(server, await prepare(box)))
        with server.client() as client:
            client.flushall()
        if taken[-1] < LONGEST_MS / 2:  # fast enough: no need to look again
            break
    return taken


# --- filters -----------------------------------------------------------------------------------------------------


async def dead(box: Box, *, event_type: str = "t" * WIDE, reason: str = "a" * ERROR) -> list[str]:
    """A full batch of DEAD events."""
    await box.put_many([Event(event_type) for _ in range(BATCH_COUNT)])
    ids = []
    while claims := await box.claim("relay-1", limit=BATCH_COUNT):
        await box.kill(claims, reason=reason)
        ids += [claim.event_id for claim in claims]
    return ids


HOSTILE_TYPES = {
    "a long part": ("*" + "a" * 127 + "b", "a" * WIDE),
    "a long part with one wildcard": ("*?" + "a" * 127 + "b", "a" * WIDE),
    "many stars": ("*a" * 32 + "b", "a" * WIDE),
    "many question marks": ("*" + "?" * 31 + "b", SMILE * WIDE),
    "question marks and a long part": ("*" + "?" * 31 + SMILE * 127 + "b", SMILE * WIDE),
}


@pytest.mark.parametrize(("glob", "event_type"), HOSTILE_TYPES.values(), ids=HOSTILE_TYPES)
async def test_no_glob_holds_up_the_server(server: servers.Server, glob: str, event_type: str):
    async def prepare(box: Box) -> Act:
        await box.put_many([Event(event_type) for _ in range(1000)])

        async def act() -> None:
            assert (await box.page(event_type=glob)).records == []

        return act

    taken = await times(server, prepare)
    print(f"{glob[:20]}...: {min(taken):.1f} ms")
    assert min(taken) < LONGEST_MS


@scene
async def a_replay_by_a_hostile_glob(box: Box) -> Act:
    await dead(box, event_type=SMILE * WIDE)
    return lambda: box.replay(event_type="*" + "?" * 31 + SMILE * 127 + "b")


@scene
async def a_hostile_error_text(box: Box) -> Act:
    await dead(box)
    return lambda: box.page(error="a" * (WIDE - 1) + "b")


@scene
async def a_hostile_error_text_of_wide_characters(box: Box) -> Act:
    await dead(box, reason=SMILE * ERROR)
    return lambda: box.page(error=SMILE * (WIDE - 1) + "b")


@scene
async def a_key_that_no_event_has(box: Box) -> Act:
    await box.put_many([Event("t" * WIDE, ordering_key=f"{n:0{WIDE}}", unique_key=f"{n:0{WIDE}}") for n in range(2000)])
    return lambda: box.page(key="k" * WIDE)


@scene
async def a_page_of_long_errors(box: Box) -> Act:
    await dead(box, reason=SMILE * ERROR)
    return lambda: box.page(limit=500)


@scene
async def a_page_of_large_events(box: Box) -> Act:
    for _ in range(8):
        await box.put(Event("large", b"x" * MAX_PAYLOAD))
    return lambda: box.page(limit=500)


@pytest.mark.parametrize("name", SCENES)
async def test_no_script_holds_up_the_server(server: servers.Server, name: str):
    taken = await times(server, SCENES[name])
    print(f"{name}: {min(taken):.1f} ms")
    assert min(taken) < LONGEST_MS
