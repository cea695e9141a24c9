"""Runs the examples as a reader would: each in its own process, with the commands of their README."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
import redis.asyncio

from examples.consumer_sql import OrderChanged, Result, handle, open_database
from redbox import Backoff, Box, Claim, Event, Phase, Reject, Relay, RetryLater, State
from redbox.consumer import Guard
from redbox.publishers.registry import open_publisher
from redbox.store.embedded import server as embedded
from redbox.testing import advance, check_invariants
from tests import servers
from tests.servers import free_port, poll

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "examples" / "README.md").read_text()
LIMIT = 20.0
PLAIN_PYTEST = {"PYTEST_ADDOPTS": "-p no:timeout"}  # a reader has installed only the packages of the README
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

pytestmark = pytest.mark.timeout(90)


def environment(**more: str) -> dict[str, str]:
    """The environment of a reader: the commands of this environment on the path, and no variables of redbox."""
    names = ("REDBOX", "HOOK_URL", "CONSUMER_", "REDIS_URL")
    plain = {name: value for name, value in os.environ.items() if not name.startswith(names)}
    return {
        **plain,
        "PATH": f"{Path(sys.executable).parent}:{plain['PATH']}",
        "NO_PROXY": "127.0.0.1",
        **PLAIN_PYTEST,
        **more,
    }


def run(command: list[str] | str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    shell = ["sh", "-ec", command] if isinstance(command, str) else command
    return subprocess.run(
        shell, cwd=cwd, env=environment(**more), capture_output=True, text=True, check=False, timeout=LIMIT
    )


def checkout(tmp_path: Path) -> Path:
    """A directory like the root of a clone, in which an example may write files."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


# --- applications under uvicorn --------------------------------------------------------------------------------


@dataclass
class Application:
    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def stop(self) -> str:
        """Stops it as an init system does; returns its output."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(LIMIT)
        return self.log.read_text()


@contextmanager
def served(command: str, port: int, cwd: Path, **more: str) -> Iterator[Application]:
    """Runs an application during the block; the block may stop it."""
    log = cwd / f"served-{port}.log"
    with log.open("wb") as said:
        process = subprocess.Popen(
            shlex.split(command), cwd=cwd, env=environment(**more), stdin=subprocess.DEVNULL, stdout=said, stderr=said
        )

    def is_up() -> bool:
        assert process.poll() is None, f"exit code {process.returncode}: {log.read_text()}"
        return f"Uvicorn running on http://127.0.0.1:{port}" in log.read_text()

    try:
        poll(is_up, f"{command} did not start: {log.read_text()}")
        yield Application(f"http://127.0.0.1:{port}", process, log)
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(LIMIT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def uvicorn(name: str, port: int) -> str:
    return shlex.join([sys.executable, "-m", "uvicorn", "--app-dir", "examples", f"{name}:app", "--port", str(port)])


def shop(port: int, cwd: Path) -> Any:
    return served(uvicorn("fastapi_app", port), port, cwd, HOOK_URL=f"http://127.0.0.1:{port}/hooks/orders")


def ask(url: str, body: Any = None) -> tuple[int, Any]:
    """The status and the JSON of the answer to a GET, or to a POST if there is a body."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=LIMIT) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def is_confirmed(url: str, order_id: str) -> Callable[[], bool]:
    return lambda: ask(f"{url}/orders/{order_id}")[1]["confirmed"]


def assert_ended_well(application: Application, said: str) -> None:
    assert application.process.returncode in (0, -signal.SIGTERM), said  # uvicorn ends by the signal it was sent
    assert "Application shutdown complete." in said or "lifespan' protocol appears unsupported" in said
    assert "Traceback" not in said
    assert "ERROR" not in said


def test_the_fastapi_application(tmp_path: Path):
    place, port = checkout(tmp_path), free_port()
    with shop(port, place) as application:
        orders = f"{application.url}/orders"
        assert ask(orders, {"id": "7", "item": "tea"}) == (202, {"event_id": "order-placed-7", "created": True})
        poll(is_confirmed(application.url, "7"), "the order was not confirmed", LIMIT)
        assert ask(orders, {"id": "7", "item": "tea"})[1] == {"event_id": "order-placed-7", "created": False}
        assert ask(orders, {"id": "7", "item": "coffee"})[0] == 409
        assert ask(f"{orders}/8")[0] == 404
        said = application.stop()
    assert_ended_well(application, said)
    assert said.count('"POST /hooks/orders HTTP/1.1" 204') == 1

    async def look() -> None:
        async with Box.open(f"embedded:{place / '.redbox'}", name="shop") as box:
            stats = await box.stats()
            assert {phase: count for phase, count in stats.phases.items() if count} == {Phase.COMPLETED: 1}
            assert stats.relays == []  # it has removed its heartbeat
            assert await check_invariants(box) == []

    asyncio.run(look())
    assert embedded.wait_stopped(place / ".redbox")


def test_the_fastapi_application_delivers_the_events_of_an_earlier_run(tmp_path: Path):
    """A killed application loses no event whose request it has answered."""
    place, port, nobody = checkout(tmp_path), free_port(), free_port()

    async def wait_a_while() -> None:
        """Moves the clock past the lease of the killed relay and past any delay."""
        async with Box.open(f"embedded:{place / '.redbox'}", name="shop") as box:
            await advance(box, minutes=5)

    away = f"http://127.0.0.1:{nobody}/hooks/orders"
    with served(uvicorn("fastapi_app", port), port, place, HOOK_URL=away) as application:
        order = {"id": "9", "item": "tea"}
        assert ask(f"{application.url}/orders", order)[0] == 202
        application.process.kill()
        application.process.wait()
    with shop(port, place) as application:
        # The dictionary that replaces the database is gone, so the client repeats its request.
        assert ask(f"{application.url}/orders", order)[1] == {"event_id": "order-placed-9", "created": False}
        asyncio.run(wait_a_while())
        poll(is_confirmed(application.url, "9"), "the order was not confirmed", LIMIT)
        assert_ended_well(application, application.stop())
    assert embedded.wait_stopped(place / ".redbox")


# --- the transaction -------------------------------------------------------------------------------------------

TRANSACTION = (
    r"ordered: 9 left, event (\S+), created: True\n"
    r"refused: event \1 is on its way already\nstock: 9\ngiven up: the payment failed\nstock: 9\n"
)


async def carts(url: str) -> int:
    async with Box.open(url, name="carts") as box:
        assert await check_invariants(box) == []
        return (await box.stats()).phases[Phase.AVAILABLE]


def test_the_transactional_put_on_the_embedded_server(tmp_path: Path):
    place = checkout(tmp_path)
    for time in (1, 2):  # the second run works beside the data of the first
        done = run([sys.executable, "examples/transactional_put.py"], place)
        assert re.fullmatch(TRANSACTION, done.stdout), done.stdout + done.stderr
        assert asyncio.run(carts(f"embedded:{place / '.redbox'}")) == time
    assert embedded.wait_stopped(place / ".redbox")


@pytest.mark.parametrize("server", ["redis", "cluster"])
def test_the_transactional_put_on_a_server(server: str, tmp_path: Path, request: pytest.FixtureRequest):
    url = request.getfixturevalue(f"{server}_url")
    done = run([sys.executable, "examples/transactional_put.py"], checkout(tmp_path), REDBOX_URL=url)
    assert re.fullmatch(TRANSACTION, done.stdout), done.stdout + done.stderr
    assert asyncio.run(carts(url)) == 1
    assert not (tmp_path / ".redbox").exists()


# --- the consumer, by hand -------------------------------------------------------------------------------------

SOURCE = "/redbox/orders"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_database(str(tmp_path / "consumer.db"))) as db:
        yield db


def deliver(db: sqlite3.Connection, event_id: str, claim: int, status: str, order: str = "7", source: str = SOURCE):
    return handle(db, source, event_id, claim, OrderChanged(order=order, status=status))


def status(db: sqlite3.Connection, order: str = "7") -> str:
    return str(db.execute("SELECT status FROM orders WHERE id = ?", (order,)).fetchone()[0])


@pytest.mark.req("DS-1")
def test_the_consumer_handles_an_event_once(database: sqlite3.Connection):
    assert deliver(database, "paid", 1, "paid") is Result.HANDLED
    assert deliver(database, "paid", 2, "must not be written") is Result.DUPLICATE  # by another relay
    assert deliver(database, "paid", 2, "must not be written") is Result.DUPLICATE  # repeated by a proxy
    assert deliver(database, "paid", 1, "must not be written") is Result.DUPLICATE  # by the first relay, late
    assert status(database) == "paid"


@pytest.mark.req("DS-2")
def test_the_consumer_refuses_what_is_late(database: sqlite3.Connection):
    assert deliver(database, "shipped", 3, "shipped") is Result.HANDLED
    assert deliver(database, "paid", 1, "paid") is Result.STALE
    assert status(database) == "shipped"
    assert deliver(database, "paid", 4, "paid again") is Result.HANDLED  # replayed: it was not remembered as seen
    assert status(database) == "paid again"


@pytest.mark.req("DS-2")
def test_the_fence_still_holds_when_ids_were_forgotten(database: sqlite3.Connection):
    assert deliver(database, "paid", 1, "paid") is Result.HANDLED
    assert deliver(database, "paid", 2, "paid") is Result.DUPLICATE
    database.execute("DELETE FROM seen")
    assert [deliver(database, "paid", claim, "paid") for claim in (1, 2)] == [Result.STALE, Result.STALE]


@pytest.mark.req("DS-2")
def test_claim_numbers_are_compared_within_one_order_of_one_box(database: sqlite3.Connection):
    assert deliver(database, "a", 9, "paid") is Result.HANDLED
    assert deliver(database, "b", 1, "paid", order="8") is Result.HANDLED
    assert deliver(database, "a", 1, "paid", order="9", source="/redbox/others") is Result.HANDLED
    assert deliver(database, "c", 2, "shipped", source="/redbox/others") is Result.HANDLED


@pytest.mark.req("DS-1", "DS-2")
def test_what_the_consumer_remembers_is_undone_with_its_work(database: sqlite3.Connection):
    database.execute("CREATE TRIGGER no BEFORE INSERT ON orders BEGIN SELECT RAISE(ABORT, 'the disk is full'); END")
    with pytest.raises(sqlite3.IntegrityError, match="the disk is full"):
        deliver(database, "paid", 1, "paid")
    database.execute("DROP TRIGGER no")
    assert [database.execute(f"SELECT * FROM {table}").fetchall() for table in ("seen", "fences")] == [[], []]
    assert deliver(database, "paid", 1, "paid") is Result.HANDLED


@pytest.mark.req("DS-1")
def test_of_many_deliveries_at_once_one_is_handled(tmp_path: Path):
    threads = 8
    together = threading.Barrier(threads)

    def deliver_one(claim: int) -> list[Result]:
        with closing(open_database(str(tmp_path / "consumer.db"))) as db:
            together.wait(LIMIT)
            return [deliver(db, f"e{number}", claim, "paid", order=str(number)) for number in range(20)]

    with ThreadPoolExecutor(threads) as pool:
        answers = list(pool.map(deliver_one, range(1, threads + 1)))
    for each in zip(*answers, strict=True):
        assert sorted(each) == [Result.DUPLICATE] * (threads - 1) + [Result.HANDLED]


# --- the consumer, fed by relays -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def consuming(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    place, port = checkout(tmp_path_factory.mktemp("consumer")), free_port()
    with served(uvicorn("consumer_sql", port), port, place) as application:
        yield f"{application.url}/orders", place / "consumer.db"
        said = application.stop()
    assert_ended_well(application, said)


@pytest.fixture
def hook(consuming: tuple[str, Path]) -> Iterator[tuple[str, sqlite3.Connection]]:
    """The URL of the consumer, and its empty database."""
    url, path = consuming
    with closing(open_database(str(path))) as db:
        for table in ("orders", "seen", "fences"):
            db.execute(f"DELETE FROM {table}")
        yield url, db


def changed(event_id: str, order: str = "7") -> Event:
    return Event("order.changed", {"order": order, "status": event_id}, event_id=event_id, ordering_key=order)


def handled(db: sqlite3.Connection) -> list[str]:
    return [event_id for (event_id,) in db.execute("SELECT event_id FROM seen ORDER BY rowid")]


async def deliver_claim(url: str, claim: Claim) -> None:
    """Delivers one claim as a relay does."""
    publisher = open_publisher(url)
    await publisher.open("test")
    try:
        await publisher.publish(claim)
    finally:
        await publisher.aclose()


@pytest.mark.req("DS-1")
async def test_a_relay_died_after_delivering(redbox_box: Box, hook: tuple[str, sqlite3.Connection]):
    url, db = hook
    await redbox_box.put_many([changed("paid"), changed("shipped")])
    (claim,) = await redbox_box.claim("died")
    await deliver_claim(url, claim)
    await advance(redbox_box, minutes=1)

    assert (await Relay(redbox_box, url).drain()).published == 2  # a duplicate is acknowledged as well
    assert handled(db) == ["paid", "shipped"]
    assert status(db) == "shipped"


@pytest.mark.req("DS-1", "DS-2")
async def test_a_relay_wakes_up_with_an_event_that_was_handled_meanwhile(
    redbox_box: Box, hook: tuple[str, sqlite3.Connection]
):
    url, db = hook
    await redbox_box.put_many([changed("paid"), changed("shipped")])
    (claim,) = await redbox_box.claim("asleep")
    await advance(redbox_box, minutes=1)
    assert (await Relay(redbox_box, url).drain()).published == 2

    await deliver_claim(url, claim)
    assert await redbox_box.ack(claim) == [False]
    assert status(db) == "shipped"


@pytest.mark.req("DS-2")
async def test_a_relay_wakes_up_with_an_event_that_was_given_up_meanwhile(
    redbox_box: Box, hook: tuple[str, sqlite3.Connection]
):
    """Only the fence detects this delivery; the sleeper is a whole relay."""
    url, db = hook
    asleep, awake = asyncio.Event(), asyncio.Event()

    async def hang(_event: Event, claim: Claim) -> None:
        asleep.set()
        await awake.wait()
        await deliver_claim(url, claim)

    await redbox_box.put_many([changed("paid"), changed("shipped")])
    sleeper = Relay(redbox_box, hang, grace=LIMIT)
    async with asyncio.timeout(LIMIT), sleeper:
        await asleep.wait()
        sleeper.stop()  # it claims nothing more, and waits for the hanging publish
        await redbox_box.operate.kill(["paid"], who="ada", why="it hangs")
        assert (await Relay(redbox_box, url).drain()).published == 1
        awake.set()
    assert sleeper.summary().fenced == 1  # neither its delivery nor its settlement counts

    assert handled(db) == ["shipped"]
    assert status(db) == "shipped"
    record = await redbox_box.get("paid")
    assert record is not None
    assert (record.state, record.last_error) == (State.DEAD, "killed by ada: it hangs")

    # A replay is a new claim with a new number.
    await redbox_box.replay(["paid"])
    assert (await Relay(redbox_box, url).drain()).published == 1
    assert handled(db) == ["shipped", "paid"]


@pytest.mark.req("DS-2")
async def test_what_is_refused_as_late_is_dead_and_not_lost(redbox_box: Box, hook: tuple[str, sqlite3.Connection]):
    """After a loss of data, claim numbers start at 1 again, below the consumer's fence."""
    url, db = hook
    assert deliver(db, "earlier", 5, "earlier", source="/redbox/test") is Result.HANDLED
    await redbox_box.put(changed("paid"))
    assert (await Relay(redbox_box, url).drain()).dead == 1
    record = await redbox_box.get("paid")
    assert record is not None
    assert (record.state, record.last_error) == (State.DEAD, 'HTTP 409 Conflict: {"result":"stale"}')


@pytest.mark.req("DS-1", "DS-2")
async def test_many_orders_many_relays_and_acknowledgements_that_get_lost(
    redbox_box: Box, hook: tuple[str, sqlite3.Connection]
):
    url, db = hook
    orders, steps = 5, 8
    lost: set[str] = set()
    publisher = open_publisher(url)
    await publisher.open("test")

    async def publish(event: Event, claim: Claim) -> None:
        await publisher.publish(claim)
        if claim.number % 3 == 0:  # delivered, but the relay gets no answer
            lost.add(event.event_id)
            raise ConnectionError("the answer was lost")

    events = [changed(f"{order}-{step}", str(order)) for step in range(steps) for order in range(orders)]
    await redbox_box.put_many(events)
    relays = [Relay(redbox_box, publish, backoff=Backoff.fixed(0.001), attempts=None, breaker=None) for _ in range(3)]
    async with asyncio.timeout(LIMIT):
        while (await redbox_box.stats()).phases[Phase.COMPLETED] < len(events):
            await asyncio.gather(*(relay.drain() for relay in relays))
    await publisher.aclose()

    assert lost
    assert sum(relay.summary().retried for relay in relays) >= len(lost)
    for order in map(str, range(orders)):
        mine = [event_id for event_id in handled(db) if event_id.startswith(f"{order}-")]
        assert mine == [f"{order}-{step}" for step in range(steps)]
        assert status(db, order) == f"{order}-{steps - 1}"
    assert await check_invariants(redbox_box) == []


def test_the_consumer_accepts_only_deliveries_with_event_id_and_claim_number(hook: tuple[str, sqlite3.Connection]):
    url, db = hook
    body = {"order": "7", "status": "paid"}
    assert ask(url, body)[0] == 422
    assert ask(f"{url}/7")[0] == 404
    assert handled(db) == []


async def test_without_an_ordering_key_a_lower_number_means_nothing(redbox_box: Box):
    """Why the consumer needs one: two events of one order are claimed together, and may arrive in any order."""
    await redbox_box.put_many([Event("order.changed"), Event("order.changed")])
    first, second = await redbox_box.claim("relay")
    assert second.number > first.number


# --- the consumers with the kit --------------------------------------------------------------------------------

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def emptied(url: str) -> str:
    """The URL of a server without data."""
    with redis.Redis.from_url(url) as client:
        client.flushall()
    return url


@pytest.mark.req("CK-1", "CK-2", "DS-1")
@pytest.mark.parametrize("name", ["consumer", "consumer_django"])
async def test_a_consumer_with_the_kit(name: str, redbox_box: Box, redis_url: str, tmp_path: Path):
    """What the relay sends: once, again after a lost acknowledgement, late, with a wrong secret, and by another process
    that has begun."""
    port = free_port()
    environment = {"CONSUMER_SECRET": SECRET, "REDIS_URL": emptied(redis_url)}
    with served(uvicorn(name, port), port, checkout(tmp_path), **environment) as application:
        url = f"{application.url}/orders"
        publisher = open_publisher(url, secret=SECRET)
        stranger = open_publisher(url, secret="whsec_" + "A" * 32)
        await publisher.open("shop")
        await stranger.open("shop")

        await redbox_box.put(Event("order.changed", {"order": "7", "status": "paid"}, ordering_key="7", event_id="a"))
        await redbox_box.put(Event("order.changed", {"order": "7", "status": "sent"}, ordering_key="7", event_id="b"))
        (first,) = await redbox_box.claim("relay")
        with pytest.raises(Reject, match="HTTP 401") as refused:
            await stranger.publish(first)
        assert refused.value.blames_target  # the event is kept until the secret is right
        await publisher.publish(first)
        await publisher.publish(first)  # the acknowledgement was lost
        assert (await asyncio.to_thread(ask, f"{url}/7"))[1] == {"status": "paid", "changes": "1"}
        await redbox_box.ack([first])
        (second,) = await redbox_box.claim("relay")
        async with redis.asyncio.Redis.from_url(redis_url) as client:
            other = Guard(client, name="shop").once("b", claim=second.number, source="/redbox/shop", ordering_key="7")
            await other.__aenter__()
            with pytest.raises(RetryLater, match="HTTP 425") as busy:
                await publisher.publish(second)
            assert 0 < busy.value.delay <= 60
            await other.__aexit__(ValueError, ValueError(), None)
        await publisher.publish(second)
        with pytest.raises(Reject, match="HTTP 409"):
            await publisher.publish(msgspec.structs.replace(first, event_id="late"))
        assert (await asyncio.to_thread(ask, f"{url}/7"))[1] == {"status": "sent", "changes": "2"}
        await publisher.aclose()
        await stranger.aclose()


# --- the README, and with it the unit tests --------------------------------------------------------------------


def blocks(chapter: str) -> list[tuple[str, str]]:
    return re.findall(r"^```(sh|text)\n(.*?)^```", chapter, re.DOTALL | re.MULTILINE)


CHAPTERS = {chapter.partition("\n")[0]: chapter for chapter in README.split("\n## ")[1:]}


def test_every_example_has_a_chapter():
    names = {path.name for path in (ROOT / "examples").glob("*.py")}
    assert names == {name for name in names if f"[{name}](#" in README}
    assert {f"#{title.lower().replace(' ', '-')}" for title in CHAPTERS} == set(
        re.findall(r"\.py\]\((#[\w-]+)\)", README)
    )


@pytest.mark.parametrize("title", CHAPTERS)
def test_the_commands_as_printed(title: str, tmp_path: Path, request: pytest.FixtureRequest):
    """Except the ports, which may be in use."""
    if "curl" in CHAPTERS[title] and not shutil.which("curl"):
        servers.do_without("curl is not installed")
    place, port = checkout(tmp_path), free_port()
    parts = [(kind, re.sub(r"\b800[01]\b", str(port), text)) for kind, text in blocks(CHAPTERS[title])]
    if "localhost:6379" in CHAPTERS[title]:
        server = urlsplit(emptied(request.getfixturevalue("redis_url"))).netloc
        parts = [(kind, text.replace("localhost:6379", server)) for kind, text in parts]
    with ExitStack() as stack:
        if "uvicorn" in parts[0][1]:
            hook_url = f"http://127.0.0.1:{port}/hooks/orders"
            command = shlex.join(["sh", "-ec", parts.pop(0)[1].replace("uvicorn", "exec uvicorn", 1)])
            application = stack.enter_context(served(command, port, place, HOOK_URL=hook_url))
            stack.callback(lambda: assert_ended_well(application, application.stop()))
        assert [kind for kind, _ in parts] == ["sh", "text"] * (len(parts) // 2), "commands, then their output"
        for (_, commands), (_, promised) in zip(parts[::2], parts[1::2], strict=True):
            try_out(commands.replace("\\\n", "").strip(), promised, place)
    if (place / ".redbox").exists():
        assert embedded.wait_stopped(place / ".redbox")


def try_out(commands: str, promised: str, place: Path) -> None:
    """Expects the promised output lines in their order. A last command that only reads is repeated until then."""
    wanted = UUID.sub("ID", promised).splitlines()

    def shown(command: str) -> list[str]:
        done = run(command, place)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return [line for line in UUID.sub("ID", done.stdout).splitlines() if line in wanted]

    found, last = shown(commands), commands.splitlines()[-1]
    if last.startswith("curl") and "--json" not in last and found == wanted[:-1]:
        poll(lambda: shown(last) == wanted[-1:], f"{last} did not print {wanted[-1]}", LIMIT)
    else:
        assert found == wanted
