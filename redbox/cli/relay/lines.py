"""Finds the lines of a TOML file in which its tables and values begin, for error messages: `tomllib` does not tell."""

from __future__ import annotations

import re
import tomllib
from typing import Final

Path = tuple[str | int, ...]

_SPACE: Final = re.compile(r"[ \t]*")
_GAP: Final = re.compile(r"(?:[ \t\r\n,]|#[^\n]*)*")  # between elements of an array or an inline table
_KEY: Final = re.compile(r"""[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'""")
_STRING: Final = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}(?!")|' + r"'''.*?'{3,5}(?!')|" + r'"(?:[^"\\\n]|\\.)*"|' + r"'[^'\n]*'", re.DOTALL
)
_SCALAR: Final = re.compile(r"[^,\]}#\r\n]*")


class Lines:
    """The lines of a file that `tomllib` accepts."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._found: dict[Path, int] = {}
        self._arrays: dict[Path, int] = {}  # arrays of tables: how many tables they have so far
        self._read()

    def find(self, path: Path) -> int | None:
        """The line of the value at this path, else of the innermost table or array around it; None if there is none.

        The path has the names of tables and fields, and the positions in arrays from 0.
        """
        while path:
            if path in self._found:
                return self._found[path]
            path = path[:-1]
        return None

    # --- reading -------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        table: Path = ()
        while True:
            self._skip(_GAP)
            if self._at >= len(self._text):
                return
            if self._text.startswith("[", self._at):
                table = self._header()
            else:
                self._pair(table)

    def _header(self) -> Path:
        """`[a.b]` or `[[a.b]]`. A name of an array of tables means its last table."""
        line, many = self._line(), self._text.startswith("[[", self._at)
        self._at += 2 if many else 1
        path: Path = ()
        names = self._names()
        for number, name in enumerate(names, 1):
            path = (*path, name)
            if many and number == len(names):
                self._found.setdefault(path, line)
                self._arrays[path] = self._arrays.get(path, 0) + 1
            if path in self._arrays:
                path = (*path, self._arrays[path] - 1)
        self._found.setdefault(path, line)
        self._skip(_SPACE)
        self._at += 2 if many else 1
        return path

    def _names(self) -> list[str]:
        names: list[str] = []
        while True:
            self._skip(_SPACE)
            found = _KEY.match(self._text, self._at)
            if found is None:  # not TOML, which cannot be
                self._at = len(self._text)
                return names
            self._at = found.end()
            text = found[0]
            names.append(next(iter(tomllib.loads(f"{text} = 0"))))
            self._skip(_SPACE)
            if not self._text.startswith(".", self._at):
                return names
            self._at += 1

    def _pair(self, table: Path) -> None:
        line = self._line()
        path = (*table, *self._names())
        self._skip(_SPACE)
        self._at += 1  # the =
        self._skip(_SPACE)
        for end in range(len(table) + 1, len(path) + 1):
            self._found.setdefault(path[:end], line)
        self._value(path)

    def _value(self, path: Path) -> None:
        opening = self._text[self._at : self._at + 1]
        if opening in ("[", "{"):
            self._at += 1
            number = 0
            while True:
                self._skip(_GAP)
                if self._at >= len(self._text) or self._text[self._at] in "]}":
                    self._at += 1
                    return
                if opening == "{":
                    self._pair(path)
                else:
                    self._found[(*path, number)] = self._line()
                    self._value((*path, number))
                    number += 1
        elif (text := _STRING.match(self._text, self._at)) is not None:
            self._at = text.end()
        else:
            self._skip(_SCALAR)

    def _skip(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self._text, self._at)
        assert found is not None  # the patterns match an empty text too
        self._at = found.end()

    def _line(self) -> int:
        return self._text.count("\n", 0, self._at) + 1
