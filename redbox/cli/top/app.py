"""The live screen: reads the box once per second, and obeys keys."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from redbox.box.desk.rates import Rates, rates_between
from redbox.box.operate import operator_name
from redbox.box.texts.stats_json import paused_keys
from redbox.cli.printing.output import printable
from redbox.cli.top import screen
from redbox.cli.top.explain import explain_box, explain_event
from redbox.cli.top.terminal import Terminal
from redbox.cli.top.view import View
from redbox.errors import RedboxError

if TYPE_CHECKING:
    from redbox import Box

READ_EVERY: Final = 1.0
ERRORS_EVERY: Final = 10.0
STORE_SECONDS: Final = 5.0  # for one reading
MESSAGE_SECONDS: Final = 8.0
SAMPLE: Final = 200  # dead events whose errors are shown
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_WORDS: Final = {
    "pause": "no event of box {box!r} is claimed until it is resumed. Pause it? [y/N]",
    "resume": "relays claim events of box {box!r} again. Resume it? [y/N]",
}


class Top:
    """The screen of one box, until `q` or a signal."""

    def __init__(self, box: Box, terminal: Terminal, *, where: str, color_system: str | None) -> None:
        self._box = box
        self._terminal = terminal
        self._color_system = color_system
        self._view = View(where)
        self._ended = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._action, self._why = "", ""
        self._errors_read = float("-inf")

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for each in _ENDING:
            loop.add_signal_handler(each, self._ended.set)
        loop.add_signal_handler(signal.SIGTSTP, self._suspend)
        loop.add_signal_handler(signal.SIGWINCH, self._draw)
        loop.add_reader(self._terminal.keyboard, self._read_keys)
        reading = asyncio.create_task(self._read_forever())
        try:
            ended = asyncio.create_task(self._ended.wait())
            await asyncio.wait({reading, ended}, return_when=asyncio.FIRST_COMPLETED)
            ended.cancel()
            if reading.done():
                reading.result()  # a defect of the screen must not look like its end
        finally:
            loop.remove_reader(self._terminal.keyboard)
            for each in (*_ENDING, signal.SIGTSTP, signal.SIGWINCH):
                loop.remove_signal_handler(each)
            for task in (reading, *self._tasks):
                task.cancel()
            await asyncio.gather(reading, *self._tasks, return_exceptions=True)

    # --- reading -------------------------------------------------------------------------------------------------

    async def _read_forever(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            await self._read()
            self._draw()
            due = max(due + READ_EVERY, loop.time())
            await asyncio.sleep(due - loop.time())

    async def _read(self) -> None:
        view, loop = self._view, asyncio.get_running_loop()
        try:
            async with asyncio.timeout(STORE_SECONDS):
                stats = await self._box.stats()
                view.paused_keys = await paused_keys(self._box, stats)
                if loop.time() - self._errors_read >= ERRORS_EVERY:
                    view.errors = await self._box.desk.recent_errors(SAMPLE)
                    self._errors_read = loop.time()
        except (RedboxError, TimeoutError) as error:
            view.away = str(error) or f"no answer within {STORE_SECONDS:g} s"
            view.add(Rates())
            return
        if view.stats is not None:
            view.add(rates_between(view.stats, stats))
        view.stats, view.away = stats, ""

    # --- drawing -------------------------------------------------------------------------------------------------

    def _draw(self) -> None:
        with suppress(OSError):  # the terminal is gone; its keyboard ends the screen
            width, height = self._terminal.size
            lines = screen.draw(self._view, width, height)
            self._terminal.draw(screen.render(lines, width, self._color_system))

    def _suspend(self) -> None:
        """Gives the terminal back while the process is stopped by Ctrl-Z."""
        loop = asyncio.get_running_loop()
        self._terminal.leave()
        loop.remove_signal_handler(signal.SIGTSTP)
        os.kill(os.getpid(), signal.SIGTSTP)  # stops here, until SIGCONT
        loop.add_signal_handler(signal.SIGTSTP, self._suspend)
        self._terminal.enter()
        self._draw()

    # --- keys ----------------------------------------------------------------------------------------------------

    def _read_keys(self) -> None:
        keys = self._terminal.read()
        if keys is None:
            self._ended.set()
            return
        for key in keys:
            self._press(key)
        self._draw()

    def _press(self, key: str) -> None:
        view = self._view
        if key == "\x1b":
            self._back()
        elif view.mode in ("ask id", "ask why"):
            self._type(key)
        elif view.mode == "confirm":
            if key in "yY":
                self._start(self._act(self._action, self._why))
            else:
                view.message = "nothing was changed"
            self._back()
        elif key == "q":
            self._ended.set()
        elif view.mode in ("help", "event"):
            self._back()
        elif key in "pr":
            self._action = "pause" if key == "p" else "resume"
            self._ask("ask why", f"{self._action.capitalize()} box {self._box.name!r}. Why?")
        elif key in "i\r\n":
            self._ask("ask id", "Event id:")
        elif key == "w":
            self._start(self._explain())
        elif key == "?":
            view.mode = "help"

    def _type(self, key: str) -> None:
        view = self._view
        if key in "\r\n":
            if view.mode == "ask id":
                event_id = view.typed.strip()
                self._back()
                if event_id:
                    self._start(self._explain(event_id))
            else:
                self._why = view.typed.strip()
                words = _WORDS[self._action].format(box=self._box.name)
                view.mode, view.prompt, view.typed = "confirm", f"{words[0].upper()}{words[1:]}", ""
        elif key in "\x7f\b":
            view.typed = view.typed[:-1]
        elif key == "\x15":
            view.typed = ""
        elif key.isprintable():
            view.typed += key

    def _ask(self, mode: Any, prompt: str) -> None:
        self._view.mode, self._view.prompt, self._view.typed, self._view.message = mode, prompt, "", ""

    def _back(self) -> None:
        self._view.mode, self._view.prompt, self._view.typed = "watch", "", ""

    # --- actions -------------------------------------------------------------------------------------------------

    def _start(self, action: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(action)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _act(self, action: str, why: str) -> None:
        try:
            await getattr(self._box.operate, action)(who=operator_name(), why=why)
        except RedboxError as error:
            await self._report(f"{action} failed: {printable(str(error))}")
        else:
            await self._read()
            await self._report(f"{action}d" if action.endswith("e") else f"{action}ed")

    async def _explain(self, event_id: str = "") -> None:
        """Explains an event, or the box."""
        view, (width, _) = self._view, self._terminal.size
        try:
            if event_id:
                lines = await explain_event(self._box, event_id, width)
            else:
                lines = await explain_box(self._box, width)
        except RedboxError as error:
            await self._report(printable(str(error)))
            return
        view.pages, view.mode = lines, "event"
        self._draw()

    async def _report(self, message: str) -> None:
        """Shows a message for some seconds."""
        self._view.message = message
        self._draw()
        await asyncio.sleep(MESSAGE_SECONDS)
        if self._view.message == message:
            self._view.message = ""
            self._draw()
