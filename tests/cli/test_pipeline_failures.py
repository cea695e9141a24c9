"""How a pipeline command reports the end of Spark and of its own output; Spark itself is not started."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from redbox import pipeline
from redbox.cli.pipeline import Spark
from redbox.cli.session import Session
from redbox.errors import RedboxError


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
