"""How a pipeline command reports the end of Spark and of its own output; Spark itself is not started."""

from __future__ import annotations

import math
import os
from datetime import datetime
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from redbox import Event, pipeline
from redbox.cli.pipeline.group import Spark
from redbox.cli.session import Session
from redbox.errors import RedboxError, UsageError
from tests.cli.conftest import Redbox


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """In place of a session of Spark."""
    made = Mock(sparkContext=SimpleNamespace(_accumulatorServer=SimpleNamespace()))
    monkeypatch.setattr(pipeline, "session", lambda *_: made)
    return made


def fail_with(error: Exception) -> None:
    with Spark(None, {}).started(Session("memory:", "default", as_json=True, debug=False)):
        raise error


def test_a_closed_output_pipe_is_not_reported_as_a_death_of_spark(running: Mock):
    with pytest.raises(BrokenPipeError):  # for which the command line ends without a word
        fail_with(BrokenPipeError(32, "Broken pipe"))
    assert running.stop.called


@pytest.mark.parametrize("error", [ConnectionRefusedError, ConnectionResetError, EOFError])
def test_a_spark_whose_process_died_is_reported(running: Mock, error: type[Exception]):
    with pytest.raises(RedboxError, match=r"^Spark died, most likely for lack of memory"):
        fail_with(error())
    assert running.stop.called


LONE = "caf\udce9"  # a byte that is not UTF-8, as Python hands over an argument
COMMANDS = (
    ("load", "{}"),
    ("load", "a.csv", "--column", "payload={}"),
    ("load", "a.csv", "--set", "{}=a"),
    ("load", "a.csv", "--job", "{}"),
    ("report", "--to", "{}"),
    ("audit", "--to", "{}"),
    ("audit", "--master", "{}"),
    ("audit", "--conf", "a={}"),
    ("patch", "--with", "{}", "--yes"),
    ("patch", "--with", "json:loads", "--where", "{}", "--yes"),
    ("archive", "--to", "{}"),
    ("replay", "--from", "lake", "--where", "{}", "--yes"),
    ("replay", "--from", "lake", "--all", "--why", "{}", "--yes"),
    ("drain", "--to", "{}", "--once"),
    ("drain", "--to", "d", "--stream", "{}", "--once"),
    ("drain", "--to", "d", "--every", "{}"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_text_that_java_cannot_take_is_refused(redbox: Redbox, running: Mock, command: tuple[str, ...]):
    redbox.put(Event("a"))
    complaints = {LONE: "cannot be encoded as UTF-8: 'caf\\udce9'", "\0": "holds a NUL character: '\\x00'"}
    for value, complaint in complaints.items():
        assert complaint in redbox.error("pipeline", *(each.format(value) for each in command), code=2)
    assert not running.mock_calls


@pytest.mark.parametrize("command", [each for each in COMMANDS if "{}" in each], ids=" ".join)
def test_an_empty_text_is_refused_unless_it_has_a_meaning(redbox: Redbox, running: Mock, command: tuple[str, ...]):
    redbox.put(Event("a"))
    name = command[command.index("{}") - 1]
    arguments = [each.format("") for each in command]
    if name in ("--why", "--master"):
        running.sparkContext = None  # the start of Spark is reached, and goes no further
        redbox("pipeline", *arguments, code=1)
    else:
        complaint = f"{'path' if name == 'load' else name} is empty; leave it out, or give a value"
        assert redbox.error("pipeline", *arguments, code=2) == complaint


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-01:00"])
@pytest.mark.parametrize("name", ["since", "until"])
def test_a_time_that_utc_does_not_have_is_refused(name: str, at: str):
    from redbox.pipeline.report.job import report
    from redbox.pipeline.source.options import Address

    spark: Any = Mock()
    with pytest.raises(UsageError, match=rf"^{name} must be between the years 1 and 9999 in UTC"):
        report(spark, Address("memory:", "default"), "out", **{name: datetime.fromisoformat(at)})
    assert not spark.mock_calls


@pytest.mark.parametrize("rate", [math.nan, math.inf, 0, -1, True, "5"])
def test_a_rate_is_checked_before_anything_is_read(rate: Any):
    from redbox.pipeline.jobs.replay import replay
    from redbox.pipeline.source.options import Address

    spark: Any = Mock(side_effect=AssertionError)
    with pytest.raises(UsageError, match=r"^rate must be "):
        replay(spark, Address("memory:", "default"), "lake", rate=rate)
    assert not spark.mock_calls


def test_the_reason_why_java_did_not_start_is_no_frame_of_its_stack(running: Mock, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: Any) -> None:
        os.write(2, b'Exception in thread "main" Master must be yarn\n\tat org.apache.Main(Main.scala:1)\n')
        raise RedboxError("Spark did not start")

    monkeypatch.setattr(pipeline, "session", fail)
    with pytest.raises(
        RedboxError, match=r'^Spark did not start \(Exception in thread "main" Master must be yarn\); --debug'
    ):
        fail_with(AssertionError())
