"""The terminal of a live screen: raw keys and the alternate screen, restored however the command ends."""

from __future__ import annotations

import codecs
import os
import re
import sys
import termios
import tty
from types import TracebackType
from typing import Any, Final, Self

_ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[2J"  # the alternate screen, without a cursor
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_HOME, _END_OF_LINE, _BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
#: Keys such as arrows send a sequence; so does a terminal that answers a question.
_SEQUENCE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.)")


class Terminal:
    """Takes over the terminal while its `with` block runs."""

    def __init__(self) -> None:
        self.keyboard = sys.stdin.fileno()
        self._screen = sys.stdout
        self._before: list[Any] | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def __enter__(self) -> Self:
        self.enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.leave()

    def enter(self) -> None:
        """Reads keys one by one, and draws on the alternate screen."""
        self._before = termios.tcgetattr(self.keyboard)
        tty.setcbreak(self.keyboard)  # Ctrl-C and Ctrl-Z still send signals
        self._write(_ENTER)

    def leave(self) -> None:
        """Restores the terminal. May be called twice."""
        if self._before is None:
            return
        before, self._before = self._before, None
        try:
            self._write(_LEAVE)
        finally:
            termios.tcsetattr(self.keyboard, termios.TCSADRAIN, before)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows; 80 and 24 if the terminal does not know them."""
        size = os.get_terminal_size(self._screen.fileno())
        return size.columns or 80, size.lines or 24

    def read(self) -> str | None:
        """The keys that were typed; None if the terminal is gone."""
        try:
            data = os.read(self.keyboard, 4096)
        except OSError:
            return None
        if not data:
            return None
        return _SEQUENCE.sub("", self._decoder.decode(data))

    def draw(self, lines: list[str]) -> None:
        """Draws the screen in one write, so that it does not flicker."""
        self._write(_HOME + "\r\n".join(f"{line}{_END_OF_LINE}" for line in lines) + _BELOW)

    def _write(self, text: str) -> None:
        self._screen.write(text)
        self._screen.flush()
