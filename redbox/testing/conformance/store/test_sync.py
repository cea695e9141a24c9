"""The blocking box: the semantics and the errors of the async one, from any thread."""

# ruff: noqa: PT012  # a transaction is a block of its own

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import sys
import threading
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, get_type_hints

import pytest

from redbox import Box as AsyncBox
from redbox import Conflict, Event, InvalidEvent, Outcome, Phase, State, UsageError
from redbox.box.bulk.replay import ReplayOptions
from redbox.errors import PartlyCommitted
from redbox.sync import Box
from redbox.testing import check_invariants
from redbox.testing.conformance.fixtures import remove
from redbox.testing.conformance.steps import make_dead, publish
from redbox.testing.plugin import new_box_name


@pytest.fixture
def blocking(store_url: str) -> Iterator[Box]:
    box = Box.open(store_url, name=new_box_name())
    yield box
    box.close()
    if store_url != "memory:":
        asyncio.run(remove(AsyncBox.open(store_url, name=box.name)))


def do(box: Box, step: Any, *args: Any, **options: Any) -> Any:
    """Runs a step of the async box."""
    work: Coroutine[Any, Any, Any] = step(box._box, *args, **options)
    return box._run(work)


def ask(box: Box, *command: Any) -> Any:
    (reply,) = box._run(box._box._store.exchange([command]))
    return reply


# --- transactions ----------------------------------------------------------------------------------------------------


@pytest.mark.req("SC-4", "SC-9")
def test_a_transaction_commits_events_and_the_callers_writes_together(blocking: Box):
    with blocking.transaction() as tx:
        key = tx.key("own")
        tx.redis.set(key, "1")
        ids = [tx.put(Event(f"n{n}", n, ordering_key="o")) for n in range(3)]
        tx.redis.incr(key)
        assert blocking.stats().totals.get("put", 0) == 0
    assert tx.results[1] == 2
    assert [(receipt.event_id, receipt.created) for receipt in tx.receipts] == [(event_id, True) for event_id in ids]
    assert ask(blocking, "GET", key) == b"2"
    assert [record.event_id for record in blocking.list()] == ids
    ask(blocking, "DEL", key)
    assert do(blocking, check_invariants) == []


@pytest.mark.req("SC-9")
def test_a_block_that_raises_writes_nothing(blocking: Box):
    with pytest.raises(ZeroDivisionError), blocking.transaction() as tx:
        tx.put(Event("n"))
        tx.redis.set(tx.key("own"), "1")
        raise ZeroDivisionError
    assert (blocking.count(), ask(blocking, "EXISTS", tx.key("own"))) == (0, 0)
    with pytest.raises(UsageError, match="inside its own"):
        tx.put(Event("n"))
    with pytest.raises(UsageError, match="for one block"), tx:
        pass


@pytest.mark.req("SC-9", "MQ-4")
def test_a_refused_event_writes_nothing(blocking: Box):
    blocking.put(Event("n", event_id="holder", unique_key="u"))
    with pytest.raises(Conflict) as conflict, blocking.transaction() as tx:
        tx.redis.set(tx.key("own"), "1")
        tx.put(Event("n", unique_key="u"))
    assert conflict.value.holder == "holder"
    assert (blocking.count(), ask(blocking, "EXISTS", tx.key("own"))) == (1, 0)
    with pytest.raises(InvalidEvent), blocking.transaction() as tx:
        tx.put(Event("n", "caf\udce9"))


@pytest.mark.req("SC-9")
def test_a_command_that_fails_says_that_the_rest_is_committed(blocking: Box):
    with pytest.raises(PartlyCommitted), blocking.transaction() as tx:
        tx.redis.set(tx.key("own"), "text")
        tx.redis.incr(tx.key("own"))
        tx.put(Event("n"))
    assert blocking.count() == 1
    ask(blocking, "DEL", tx.key("own"))


@pytest.mark.req("SC-9")
def test_threads_each_have_their_own_transaction(blocking: Box):
    def work(number: int) -> list[str]:
        with blocking.transaction() as tx:
            tx.put(Event("n", number, unique_key=f"k{number}"))
            tx.put(Event("n", number, ordering_key="o"))
        return [receipt.event_id for receipt in tx.receipts]

    with ThreadPoolExecutor(8) as threads:
        ids = [each for found in threads.map(work, range(8)) for each in found]
    assert sorted(record.event_id for record in blocking.list()) == sorted(ids)
    assert do(blocking, check_invariants) == []


def test_a_transaction_in_a_closed_box_says_so(blocking: Box):
    with pytest.raises(UsageError, match="closed"), blocking.transaction() as tx:
        tx.put(Event("n"))
        blocking.close()
    for call in (blocking.transaction, blocking.stats, blocking.count, lambda: blocking.replay(["x"])):
        with pytest.raises(UsageError, match="closed"):
            call()


@pytest.mark.needs("server")
def test_a_transaction_from_before_a_fork_writes_nothing(blocking: Box):
    with blocking.transaction() as tx:
        tx.put(Event("parent"))
        child = os.fork()
        if child == 0:  # pragma: no cover  # in another process
            signal.alarm(20)
            code = 1
            try:
                tx.__exit__(None, None, None)
            except UsageError:
                with blocking.transaction() as own:
                    own.put(Event("child"))
                code = 0 if own.receipts[0].created else 2
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
    assert sorted(record.event.event_type for record in blocking.list()) == ["child", "parent"]


@pytest.mark.needs("server")
@pytest.mark.timeout(120)
def test_all_threads_of_a_forked_process_share_its_box(blocking: Box):
    """As those of a server of workers that opens the box before it forks: the first calls come at the same time."""
    blocking.put(Event("parent"))
    for _ in range(5):
        child = os.fork()
        if child == 0:  # pragma: no cover  # in another process
            signal.alarm(20)
            code = 1
            try:
                sys.setswitchinterval(1e-5)
                together = threading.Barrier(8)

                def put(_: int, together: threading.Barrier = together) -> bool:
                    together.wait()
                    return blocking.put(Event("child")).created

                with ThreadPoolExecutor(8) as threads:
                    code = 0 if all(threads.map(put, range(8))) else 2
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
    assert blocking.count(event_type="child") == 40


# --- closing ---------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(60)
def test_closing_ends_the_calls_of_other_threads(blocking: Box):
    """Else they would wait for ever, and keep the process from ending."""
    do(blocking, make_dead, *(Event("a") for _ in range(3)))
    waiting, ended = threading.Event(), list[str]()

    def replay() -> None:
        try:
            blocking.replay(state="DEAD", rate=0.001, progress=lambda _: waiting.set())  # waits before the second one
        except UsageError as error:
            ended.append(str(error))

    other = threading.Thread(target=replay, daemon=True)
    other.start()
    assert waiting.wait(30)
    blocking.close()
    other.join(20)
    assert ["closed by another thread" in each for each in ended] == [True]


# --- stats, count and replay -----------------------------------------------------------------------------------------


@pytest.mark.req("MQ-1")
def test_stats_and_count(blocking: Box):
    blocking.put_many([Event("a"), Event("b", delay=60)])
    do(blocking, make_dead, Event("a"), Event("a"))  # claims the first two that are due
    stats = blocking.stats()
    assert (stats.phases[Phase.SCHEDULED], stats.phases[Phase.DEAD], stats.phases[Phase.AVAILABLE]) == (1, 2, 1)
    assert (blocking.count(state="DEAD"), blocking.count(event_type="a", limit=1)) == (2, 1)
    assert (blocking.name in repr(blocking), blocking.where in repr(blocking)) == (True, True)


@pytest.mark.req("MQ-4")
def test_replay(blocking: Box):
    (old,) = do(blocking, make_dead, Event("a", unique_key="u"))
    (plain,) = do(blocking, make_dead, Event("a"))
    do(blocking, publish, Event("b"))
    blocking.put(Event("a", event_id="holder", unique_key="u"))
    done: list[int] = []
    dry = blocking.replay(state="DEAD", dry_run=True)
    assert (dry.matched, dry.replayed) == (2, 0)
    report = blocking.replay(state=State.DEAD, who="ada", why="fixed", progress=done.append)
    assert (report.matched, report.replayed, report.refused) == (2, 1, [(old, Outcome.CONFLICT, "holder")])
    assert done == [2]
    assert blocking.replay([old], force=True).replayed == 1
    assert {record.event_id for record in blocking.list(state="PENDING")} == {old, plain, "holder"}
    with pytest.raises(UsageError, match="say what to replay"):
        blocking.replay()
    assert do(blocking, check_invariants) == []


def test_a_callback_that_calls_the_box_is_refused_and_does_not_hang(blocking: Box):
    do(blocking, make_dead, Event("a"))
    with pytest.raises(UsageError, match="must not call the box"):
        blocking.replay(state="DEAD", progress=lambda _: print(blocking.stats()))
    assert blocking.stats().box == blocking.name  # and it goes on


@pytest.mark.timeout(60)
def test_an_interrupted_call_ends(blocking: Box):
    """Ctrl-C ends a slow replay, and not only the wait for it."""
    do(blocking, make_dead, *(Event("a") for _ in range(3)))
    waiting = threading.Event()

    def press() -> None:
        waiting.wait(30)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    interrupt = threading.Thread(target=press)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may start programs without it
    try:
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            blocking.replay(state="DEAD", canary=1, canary_wait=3600, watching=lambda _: waiting.set())
        interrupt.join()
    finally:
        signal.signal(signal.SIGINT, before)

    async def running() -> bool:
        return any("Box.replay" in repr(task.get_coro()) for task in asyncio.all_tasks())

    deadline = time.monotonic() + 30
    while blocking._run(running()):  # the cancellation is on its way
        assert time.monotonic() < deadline, "the replay goes on"
    assert blocking.count(state="DEAD") == 2


def test_the_options_of_replay_are_those_of_the_async_box():
    wanted = get_type_hints(AsyncBox.replay)
    names = list(inspect.signature(AsyncBox.replay).parameters)
    assert get_type_hints(ReplayOptions) == {name: wanted[name] for name in names if name not in ("self", "ids")}
