"""`redbox top`: the screen as text, and the command on a pseudo-terminal."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from redbox import Box, Event, Phase
from redbox.box.desk.rates import Rates
from redbox.box.desk.recent_errors import RecentError
from redbox.box.reports import Pause
from redbox.cli.top import screen
from redbox.cli.top.app import Top
from redbox.cli.top.view import View
from redbox.errors import StoreUnavailable
from tests.cli.conftest import Redbox
from tests.servers import valkey_binary
from tests.unit.test_conditions import relay, stats

pytestmark = [pytest.mark.timeout(90), pytest.mark.req("RO-3")]
TOP = [sys.executable, "-m", "redbox", "--url", "embedded:./data", "top"]
ENTERED, LEFT = "\x1b[?1049h", "\x1b[?1049l"

# --- the screen ------------------------------------------------------------------------------------------------


def busy(**fields: Any) -> View:
    phases = {Phase.AVAILABLE: 198_175, Phase.SCHEDULED: 3, Phase.DEAD: 400, Phase.COMPLETED: 100_000}
    relays = [relay(1, host="h", target="https://h/", breaker="open", reason="HTTP 503"), relay(60)]
    at = {"oldest_available": timedelta(seconds=73), "next_due": timedelta(seconds=5)}
    view = View("redis://h", stats=stats(phases, waiting=7, relays=relays, **at, **fields))
    for number in range(100):
        view.add(Rates(put=float(number), published=None if number % 7 == 0 else 5.0, failed=0.0, seconds=1.0))
    view.errors = tuple(RecentError(error=f"HTTP 50{n} \x1b[31m" * 9, count=9 - n, event_id=f"e{n}") for n in range(9))
    return view


def text_of(view: View, width: int = 80, height: int = 24) -> list[str]:
    lines = screen.draw(view, width, height)
    assert len(lines) == height
    assert all(line.cell_len <= width for line in lines)
    assert len(screen.render(lines, width, None)) == height
    return [line.plain for line in lines]


def test_the_screen_of_80_by_24():
    lines = text_of(busy())
    assert lines[0].startswith(" redbox top  box orders on redis://h")
    assert lines[0].endswith("12:00:00Z")
    assert re.fullmatch(r"put +99/s +[▁▂▃▄▅▆▇█]{40}  max 99/s", lines[2])
    assert lines[6].split()[:2] == ["AVAILABLE", "198,175"]
    assert lines[6].endswith("oldest 1 min 13 s; 7 waiting")
    assert lines[7].endswith("next due in 5 s")
    shown = "\n".join(lines)
    assert "breaker of relay r: HTTP 503" in shown
    assert "silent 1 min" in shown
    assert "\\x1b[31m" in shown
    assert "more errors" in shown
    assert lines[-1].split() == [*["p", "pause", "r", "resume", "i", "event", "w", "why", "?", "help", "q", "quit"]]


@pytest.mark.parametrize("size", [(1, 1), (10, 3), (40, 10), (80, 24), (132, 43), (250, 70)])
@pytest.mark.parametrize("mode", ["watch", "help", "event", "ask why", "confirm"])
def test_the_screen_fits_every_terminal(size: tuple[int, int], mode: Any):
    view = busy(paused=True, overdue=1, blocked=2, lost=1, lost_ids=["e1"])
    view.mode, view.prompt, view.typed, view.pages = mode, "Why?", "x中" * 100, ["中" * 300] * 100
    text_of(view, *size)
    text_of(View("redis://h"), *size)


def test_a_pause_and_alarms_are_shown():
    lines = text_of(busy(paused=True, overdue=1))
    assert lines[1] == "PAUSED: no event is claimed until the box is resumed"
    assert any(line.startswith("1 overdue claim") for line in lines)


def test_no_text_is_cut_between_its_words():
    """Alarms, pauses and the help are wrapped; of the relays, those with an open breaker are shown first."""
    why = "the provider of payments announced maintenance, which takes longer than they said at first"
    view = busy(paused=True, pause=Pause("ada", why, None, None), lost=2, lost_ids=[f"e{'1' * 35}", f"e{'2' * 35}"])
    reason = "HTTP 503 Service Unavailable: upstream connect error or disconnect/reset"
    relays = [*(relay(1) for _ in range(9)), relay(1, breaker="open", reason=reason)]
    assert view.stats is not None
    view.stats = msgspec.structs.replace(view.stats, relays=relays)
    shown = text_of(view, 80, 40)
    assert not any("…" in line for line in shown if "HTTP 50" not in line)
    assert shown[1].startswith("PAUSED: no event is claimed until the box is resumed (by ada")
    assert "at first)" in shown[2]
    after = next(number for number, line in enumerate(shown) if line.startswith("RELAY"))
    assert "open" in shown[after + 1]
    assert any(line.endswith("disconnect/reset") for line in shown)
    view.mode = "help"
    assert "are attempts that failed." in " ".join(" ".join(text_of(view)).split())


def test_the_end_of_a_long_answer_stays_visible():
    view = busy()
    view.mode, view.prompt, view.typed = "ask why", "Why?", "a" * 100 + "the end"
    assert text_of(view)[-1].endswith("the end▏")


@pytest.mark.parametrize(
    ("values", "width", "line"),
    [
        ([], 3, "   "),
        ([0.0, 0.0], 3, " ▁▁"),
        ([0.0, None, 4.0, 8.0], 4, "▁ ▅█"),
        ([1.0, 2.0, 3.0], 2, "▆█"),
        ([1.0], 0, ""),
    ],
)
def test_a_sparkline(values: list[float | None], width: int, line: str):
    assert screen.sparkline(values, width) == line


# --- keys and readings -----------------------------------------------------------------------------------------


class Keyboard:
    """A terminal of 100 columns whose keys come from a test."""

    keyboard = -1
    size = (100, 30)

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.keys: str | None = ""

    def read(self) -> str | None:
        return self.keys

    def draw(self, lines: list[str]) -> None:
        self.lines = lines

    def type(self, top: Top, keys: str | None) -> str:
        self.keys = keys
        top._read_keys()
        return "\n".join(self.lines)


async def settled(top: Top) -> None:
    """Lets actions reach their messages, which stay for some seconds."""
    while any(not task.done() for task in top._tasks) and not top._view.message and top._view.mode != "event":  # noqa: ASYNC110  # of a view
        await asyncio.sleep(0)


async def watching(box: Box) -> tuple[Top, Keyboard]:
    keyboard = Keyboard()
    top = Top(box, keyboard, where="memory:", color_system=None)  # type: ignore[arg-type]
    await box.put(Event("a", event_id="e1"))
    await top._read()
    return top, keyboard


async def test_pause_and_resume_ask_for_the_reason_and_an_answer(redbox_box: Box):
    (top, keyboard), box = await watching(redbox_box), redbox_box
    assert "Pause box 'test'. Why? deploy" in keyboard.type(top, "pdeploX\x7fy")
    assert "No event of box 'test' is claimed until it is resumed. Pause it? [y/N]" in keyboard.type(top, "\n")
    assert "nothing was changed" in keyboard.type(top, "n")
    assert not (await box.stats()).paused
    keyboard.type(top, "pdeploy\ny")
    await settled(top)
    assert (await box.stats()).paused
    assert "PAUSED" in keyboard.type(top, "")
    keyboard.type(top, "r\x15back\r")
    top._view.message = ""
    keyboard.type(top, "y")
    await settled(top)
    assert [(entry.action, entry.why) for entry in await box.operate.log()] == [("resume", "back"), ("pause", "deploy")]
    for task in top._tasks:
        task.cancel()


async def test_an_event_and_the_help(redbox_box: Box):
    top, keyboard = await watching(redbox_box)
    assert "this help" in keyboard.type(top, "?")
    assert "this help" not in keyboard.type(top, "\x1b")
    assert "Event id: e1" in keyboard.type(top, "\ne1")
    keyboard.type(top, "\n")
    await settled(top)
    assert keyboard.lines[1].startswith("event e1 of type a: no relay")
    assert any(line.startswith("attempts") for line in keyboard.lines)
    keyboard.type(top, "x")
    keyboard.type(top, "inope\n")
    await settled(top)
    assert keyboard.lines[1].startswith("event nope: unknown")
    keyboard.type(top, "\x1bw")
    await settled(top)
    assert keyboard.lines[1].startswith("box test: no relay")
    assert any("redbox --box test relay" in line for line in keyboard.lines)
    keyboard.type(top, "\x1b")
    assert not top._ended.is_set()
    keyboard.type(top, "q")
    assert top._ended.is_set()


async def test_a_terminal_that_is_gone_ends_it(redbox_box: Box):
    top, keyboard = await watching(redbox_box)
    keyboard.type(top, None)
    assert top._ended.is_set()


async def test_a_store_that_goes_away_is_shown_and_read_again(redbox_box: Box, monkeypatch: pytest.MonkeyPatch):
    (top, keyboard), box = await watching(redbox_box), redbox_box

    async def fail() -> None:
        raise StoreUnavailable("it is away")

    with monkeypatch.context() as patch:
        patch.setattr(box, "stats", fail)
        await top._read()
        shown = keyboard.type(top, "")
        assert "THE STORE DOES NOT ANSWER: it is away" in shown
        assert "AVAILABLE" in shown, "the last counts stay"
    await top._read()
    assert "DOES NOT ANSWER" not in keyboard.type(top, "")


async def test_the_errors_of_the_newest_dead_events(redbox_box: Box):
    await redbox_box.put_many([Event("a", event_id=f"e{n}") for n in range(6)])
    claims = await redbox_box.claim("r")
    for claim, reason in zip(claims, ("old", "a", "b", "a", "a", "b"), strict=True):
        await redbox_box.kill(claim, reason=reason)
    found = await redbox_box.desk.recent_errors(5)
    assert [(each.error, each.count) for each in found] == [("a", 3), ("b", 2)]
    assert found[1].event_id == "e5"


# --- as a process ----------------------------------------------------------------------------------------------


class Screen:
    """A command on a pseudo-terminal of 90 columns and 30 rows."""

    def __init__(self, command: list[str]) -> None:
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell that runs the tests in the background ignores it
            os.environ["TERM"] = "xterm-256color"
            os.environ.pop("COLUMNS", None)
            os.execvp(command[0], command)
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 90, 0, 0))
        self.before = termios.tcgetattr(self.terminal)
        self.shown = ""

    def type(self, keys: str) -> None:
        os.write(self.terminal, keys.encode())

    def wait_for(self, text: str) -> None:
        """Reads until the text is shown, after what was awaited before."""
        deadline = time.monotonic() + 40
        while text not in self.shown:
            assert time.monotonic() < deadline, (text, self.shown[-2000:])
            if select.select([self.terminal], [], [], 0.5)[0]:
                try:
                    self.shown += os.read(self.terminal, 65536).decode(errors="replace")
                except OSError as error:
                    raise AssertionError(self.shown[-2000:]) from error
        self.shown = self.shown.partition(text)[2]

    def is_restored(self) -> bool:
        return termios.tcgetattr(self.terminal) == self.before

    def exit_code(self) -> int:
        """Reads to the end: a command that writes more than the terminal holds would wait for a reader."""
        deadline = time.monotonic() + 40
        with suppress(OSError):
            while select.select([self.terminal], [], [], max(0.0, deadline - time.monotonic()))[0]:
                self.shown += os.read(self.terminal, 65536).decode(errors="replace")
        assert time.monotonic() < deadline, self.shown[-2000:]
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self.pid = 0
        return code

    def close(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.terminal)


@pytest.fixture
def embedded(redbox: Redbox) -> str:
    valkey_binary()
    redbox.url = "embedded:./data"
    redbox.put(Event("a", event_id="e1"))
    return redbox.url


@pytest.fixture
def shown(embedded: str) -> Iterator[Screen]:
    running = Screen(TOP)
    try:
        running.wait_for(ENTERED)
        running.wait_for("AVAILABLE")
        running.wait_for("quit")
        yield running
    finally:
        running.close()


def test_keys_on_a_terminal(shown: Screen, redbox: Redbox):
    shown.type("?")
    shown.wait_for("this help")
    shown.type("\x1b")
    shown.wait_for("AVAILABLE")
    shown.type("ie1\n")
    shown.wait_for("event e1 of type a")
    shown.type(" p")
    shown.wait_for("Why?")
    shown.type("a test\n")
    shown.wait_for("Pause it? [y/N]")
    shown.type("y")
    shown.wait_for("PAUSED: no event is claimed")
    assert redbox.within(lambda box: box.stats()).paused
    shown.type("q")
    shown.wait_for(LEFT)
    assert shown.exit_code() == 0
    assert shown.is_restored()


@pytest.mark.parametrize("how", ["Ctrl-C", "SIGTERM"])
def test_a_signal_ends_it_and_the_terminal_is_restored(shown: Screen, how: str):
    if how == "Ctrl-C":
        shown.type("\x03")
    else:
        os.kill(shown.pid, signal.SIGTERM)
    shown.wait_for(LEFT)
    assert shown.exit_code() == 0
    assert shown.is_restored()


def test_it_can_be_stopped_and_continued(embedded: str):
    command = " ".join(TOP)
    shell = Screen(["bash", "-m", "-c", f"{command}; echo STOPPED; read line; fg; echo DONE"])
    try:
        shell.wait_for(ENTERED)
        shell.wait_for("AVAILABLE")
        shell.type("\x1a")
        shell.wait_for(LEFT)
        shell.wait_for("STOPPED")
        assert shell.is_restored()
        shell.type("\n")
        shell.wait_for(ENTERED)
        shell.wait_for("AVAILABLE")
        shell.type("q")
        shell.wait_for(LEFT)
        shell.wait_for("DONE")
        assert shell.exit_code() == 0
    finally:
        shell.close()


@pytest.mark.req("RO-5")
def test_stats_are_redrawn_in_place_until_ctrl_c(embedded: str):
    watch = Screen([*TOP[:-1], "stats", "--watch", "0.2"])
    try:
        watch.wait_for("\x1b[2J\x1b[H")
        watch.wait_for("AVAILABLE")
        watch.wait_for("\x1b[H")
        watch.wait_for("rates")
        watch.type("\x03")
        assert watch.exit_code() == 0
    finally:
        watch.close()


def test_a_kill_asks_on_a_terminal(embedded: str, redbox: Redbox):
    for answer, code, state in (("n", 1, "PENDING"), ("y", 0, "DEAD")):
        asking = Screen([*TOP[:-1], "kill", "e1", "--why", "test"])
        try:
            asking.wait_for("Kill 1 event of box 'default'? [y/N]")
            asking.type(f"{answer}\n")
            asking.wait_for("nothing was changed" if code else "1 event killed")
            assert asking.exit_code() == code
        finally:
            asking.close()
        record = redbox.within(lambda box: box.get("e1"))
        assert record is not None
        assert record.state.value == state


def test_a_listing_is_piped_into_a_command(embedded: str):
    redbox = " ".join(TOP[:-1])
    pipe = f"{redbox} --json list | {redbox} kill - --yes && {redbox} --json dead list | {redbox} drop - --yes"
    done = subprocess.run(pipe, shell=True, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "1 event killed\n1 event dropped\n"


def test_without_a_terminal_it_names_the_other_command(redbox: Redbox):
    redbox.put(Event("a"))
    for options in ((), ("--json",)):
        result = redbox(*options, "top", code=2)
        assert "top needs a terminal; use `redbox stats --watch`" in result.stderr
