"""Runs the questions: a fresh server for each contender and round, interleaved rounds; the best round counts."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

from bench import environments, machine
from bench.question import Contender, Figures, Question
from bench.target import TARGETS, NoTarget
from tests.servers import Server, redis_server, valkey_server

SCRIPTS = Path(__file__).parent / "contenders"
GUESS = 4.0  # seconds for a run that has not been timed yet


class Failed(Exception):
    """A contender could not be measured; the message says why."""


class Progress:
    """Prints what is running and how much time is left."""

    def __init__(self, plan: Sequence[tuple[Question, int]]) -> None:
        self._left = [(question.name, each.name) for question, rounds in plan for each in question.contenders * rounds]
        self._all = len(self._left)
        self._took: dict[tuple[str, str], float] = {}

    def say(self, question: Question, contender: Contender, number: int, rounds: int) -> None:
        known = sum(self._took.values()) / len(self._took) if self._took else GUESS
        seconds = sum(self._took.get(run, known) for run in self._left)
        done = self._all - len(self._left) + 1
        print(
            f"[{done}/{self._all}, {seconds / 60:4.1f} min left] {question.name}: {contender.name}"
            + (f", round {number} of {rounds}" if rounds > 1 else ""),
            flush=True,
        )

    def took(self, question: Question, contender: Contender, seconds: float) -> None:
        run = (question.name, contender.name)
        self._left.remove(run)
        self._took[run] = seconds


def ask(question: Question, rounds: int, share: float, progress: Progress) -> dict[str, dict[str, Any]]:
    """The rounds and best figures of every contender, or why there are none. `share`: the fraction of events to use."""
    answers: dict[str, dict[str, Any]] = {each.name: {"rounds": []} for each in question.contenders}
    for number in range(1, rounds + 1):
        for contender in question.contenders:
            answer = answers[contender.name]
            progress.say(question, contender, number, rounds)
            began = time.monotonic()
            try:
                answer["rounds"].append(_measure(question, contender, share))
            except Failed as error:
                print(f"    {error}", flush=True)
                answer["failed"] = str(error)
            progress.took(question, contender, time.monotonic() - began)
    for contender in question.contenders:
        answer = answers[contender.name]
        answer["kind"] = contender.kind
        if answer["rounds"]:
            answer["versions"] = answer["rounds"][-1]["versions"]
            for figures in answer["rounds"]:
                del figures["versions"]
            answer["best"] = question.best(answer["rounds"])
    return answers


def _measure(question: Question, contender: Contender, share: float) -> Figures:
    interpreter = environments.python(contender.runs_in) if contender.runs_in else Path(sys.executable)
    if interpreter is None:
        raise Failed("could not be installed")
    if question.pinned and not machine.can_pin():
        raise Failed("this system cannot pin a process to a core")
    events = max(100, int(contender.events * share)) // 100 * 100
    command = [str(interpreter), str(SCRIPTS / f"{contender.script}.py"), contender.asked or question.name]
    with ExitStack() as stack:
        server = stack.enter_context(_server(contender, question))
        command += ["--url", server.url, "--events", str(events), "--variant", contender.variant]
        if question.beside:
            command += ["--beside", stack.enter_context(_server(contender, question)).url]
        if contender.target:
            try:
                command += ["--target", stack.enter_context(TARGETS[contender.target]())]
            except NoTarget as error:
                raise Failed(str(error)) from None
        core = machine.cores()[-1] if question.pinned else None
        if core is not None:
            machine.pin(server.pid, core)
        return _answer(command, core, question.patience)


def _server(contender: Contender, question: Question) -> AbstractContextManager[Server]:
    launch = valkey_server if contender.server == "valkey" else redis_server
    return launch(**question.settings)


def _answer(command: list[str], core: int | None, patience: float) -> Figures:
    """Runs a script and returns the JSON that it prints."""
    script = subprocess.Popen(  # noqa: S603  # scripts of our own
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        if core is not None:
            machine.pin(script.pid, core)  # while it still imports
        said, complaint = script.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        raise Failed(f"did not finish within {patience:.0f} s") from None
    finally:
        if script.poll() is None:
            os.killpg(script.pid, signal.SIGKILL)  # with its child processes
            script.wait()
    try:
        figures: Figures = json.loads(said.strip().rpartition("\n")[2])
    except json.JSONDecodeError:
        print(complaint, file=sys.stderr)
        raise Failed(_last_line(complaint) or f"exit code {script.returncode}, no output") from None
    return figures


def _last_line(text: str) -> str:
    """The error message, with paths removed."""
    return re.sub(r"(/[\w.@-]+){2,}", "...", text.strip().rpartition("\n")[2])[:200]
