"""Event ids: UUIDv7, strictly increasing within a process, whatever its clock and threads do."""

from __future__ import annotations

import os
import threading
import time
from uuid import UUID

import pytest

from redbox import ids
from redbox.ids import new_id

pytestmark = pytest.mark.req("EM-1")


def test_shape():
    before = time.time_ns() // 1_000_000
    text = new_id()
    after = time.time_ns() // 1_000_000
    parsed = UUID(text)
    assert str(parsed) == text
    assert (parsed.version, parsed.variant) == (7, "specified in RFC 4122")
    assert before <= parsed.int >> 80 <= after + 1  # an exhausted counter may run one millisecond ahead


def test_ids_made_in_order_sort_in_order():
    made = [new_id() for _ in range(5000)]
    assert sorted(set(made)) == made


def test_ids_of_many_threads_are_distinct_and_increase_in_each():
    made: dict[int, list[str]] = {}
    together = threading.Barrier(8)

    def make(number: int) -> None:
        together.wait()
        made[number] = [new_id() for _ in range(1000)]

    threads = [threading.Thread(target=make, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(sorted(mine) == mine for mine in made.values())
    assert len({text for mine in made.values() for text in mine}) == 8000


def test_ids_increase_although_the_clock_is_set_back(monkeypatch: pytest.MonkeyPatch):
    generator = ids._Generator()
    clock = [2_000_000_000_000, 1_000_000_000_000, 1_000_000_000_000]
    monkeypatch.setattr(ids.time, "time_ns", lambda: clock.pop(0) * 1_000_000)
    first, second, third = (generator.next() for _ in range(3))
    assert first < second < third


def test_a_full_counter_runs_into_the_next_millisecond(monkeypatch: pytest.MonkeyPatch):
    generator = ids._Generator()
    monkeypatch.setattr(ids.time, "time_ns", lambda: 2_000_000_000_000 * 1_000_000)
    first = generator.next()
    generator._high, generator._low = (1 << 26) - 1, (1 << 48) - 1
    second = generator.next()
    assert first < second
    assert UUID(second).int >> 80 == 2_000_000_000_001
    assert UUID(second).version == 7


def ids_of_child() -> list[str]:
    """Returns the ids that a forked process makes right after the fork."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writer, "\n".join(new_id() for _ in range(50)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        made = pipe.read().split()
    os.waitpid(pid, 0)
    return made


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_forked_processes_do_not_repeat_each_other():
    new_id()
    made = [*ids_of_child(), *ids_of_child(), *(new_id() for _ in range(50))]
    assert len(set(made)) == 150


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_while_another_thread_makes_an_id_does_not_hang():
    with ids._generator._lock:
        made = ids_of_child()
    assert len(set(made)) == 50


def test_a_full_lower_part_carries(monkeypatch: pytest.MonkeyPatch):
    generator = ids._Generator()
    monkeypatch.setattr(ids.time, "time_ns", lambda: 2_000_000_000_000 * 1_000_000)
    generator.next()
    generator._low = (1 << 48) - 1
    generator._set_head()
    before = f"{generator._head}{generator._low:012x}"
    after = generator.next()
    assert before < after
    assert UUID(after).int >> 80 == 2_000_000_000_000
    assert (UUID(after).version, UUID(after).variant) == (7, "specified in RFC 4122")
