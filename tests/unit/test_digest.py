"""The digest of a relay's log: the first message of each kind, then how many more."""

from __future__ import annotations

import logging

import pytest

from redbox.relay.digest import KINDS, WINDOW, Digest, fold


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def digest(clock: Clock, caplog: pytest.LogCaptureFixture) -> Digest:
    caplog.set_level(logging.INFO, "redbox.relay")
    return Digest(clock)


def fail(digest: Digest, number: int, reason: str = "HTTP 500") -> None:
    digest.write(logging.WARNING, "failed", f"event e{number} failed", reason)


async def test_the_first_is_written_at_once_and_the_others_are_counted(
    digest: Digest, clock: Clock, caplog: pytest.LogCaptureFixture, redbox_runner: object
):
    for number in range(38):
        fail(digest, number)
    assert caplog.messages == ["event e0 failed: HTTP 500"]
    clock.now += 60
    await digest.run_once()
    assert caplog.messages[1:] == ["37 more like this in the last 60 s, the latest: event e37 failed: HTTP 500"]
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert caplog.records[1].more == 37  # type: ignore[attr-defined]  # for logs in JSON


def test_nothing_more_means_no_summary(digest: Digest, clock: Clock, caplog: pytest.LogCaptureFixture):
    fail(digest, 0)
    for _ in range(3):
        clock.now += 60
        digest.flush()
    assert len(caplog.messages) == 1


def test_a_kind_that_comes_again_after_a_quiet_window_is_written_at_once(
    digest: Digest, clock: Clock, caplog: pytest.LogCaptureFixture
):
    fail(digest, 0)
    clock.now += 60
    digest.flush()
    fail(digest, 1)
    assert caplog.messages == ["event e0 failed: HTTP 500", "event e1 failed: HTTP 500"]


def test_a_kind_that_goes_on_is_summed_up_once_per_window(
    digest: Digest, clock: Clock, caplog: pytest.LogCaptureFixture
):
    """Also where nothing calls `run_once`."""
    for number in range(600):
        fail(digest, number)
        clock.now += 1
    assert 9 <= len(caplog.messages) <= 11
    assert sum(record.more for record in caplog.records[1:]) < 600  # type: ignore[attr-defined]
    digest.flush()
    assert sum(record.more for record in caplog.records[1:]) == 599  # type: ignore[attr-defined]


def test_different_reasons_and_subjects_are_different_kinds(digest: Digest, caplog: pytest.LogCaptureFixture):
    fail(digest, 0)
    fail(digest, 1, "HTTP 503")
    digest.write(logging.WARNING, "dead", "event e0 is dead", "HTTP 500")
    assert len(caplog.messages) == 3


def test_lines_and_memory_are_bounded(digest: Digest, clock: Clock, caplog: pytest.LogCaptureFixture):
    for number in range(10_000):
        fail(digest, number, "reason " + chr(ord("a") + number % 26) * (1 + number // 26))
    assert len(caplog.messages) == KINDS
    clock.now += WINDOW
    digest.flush()
    assert len(digest._kinds) <= KINDS + 1
    assert caplog.messages[-1] == (
        f"{10_000 - KINDS:,} more of other kinds in the last 60 s, the latest: event e9999 failed: reason " + "p" * 385
    )


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("order 12345 is unknown", "order 67 is unknown", True),
        ("no user 'ann'", "no user 'bob'", True),
        ('{"error": "x"}', '{"error": "y"}', True),
        ("bad id 0196-ab3f-77", "bad id 0196-cc00-12", True),
        ("held by vm-1234-ab12cd", "held by vm-99-ffffff", True),
        ("HTTP 500", "HTTP 503", False),
        ("ValueError: no", "KeyError: no", False),
        ("connection refused", "connection reset", False),
        ("x" * 200 + "a", "x" * 200 + "b", True),
    ],
)
def test_messages_of_one_kind(one: str, other: str, same: bool):
    assert (fold(one) == fold(other)) is same


def test_a_percent_sign_is_only_a_character(digest: Digest, caplog: pytest.LogCaptureFixture):
    fail(digest, 0, "100%s %d")
    fail(digest, 1, "100%s %d")
    digest.flush()
    assert caplog.messages[0] == "event e0 failed: 100%s %d"
    assert caplog.messages[1].endswith("the latest: event e1 failed: 100%s %d")
