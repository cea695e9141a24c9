"""Results: tables and colours on a terminal, aligned plain text in a pipe, JSON with --json.

Text from a box was written by others: it never reaches a terminal unescaped, nor as markup of rich.
"""

from __future__ import annotations

import json
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import click

from redbox.cli.printing.tables import GAP, fit_columns
from redbox.terminals import escape_json
from redbox.terminals import printable as printable  # noqa: PLC0414  # commands import it from here

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

STYLES: Final = {
    "AVAILABLE": "cyan",
    "AVAILABLE waiting": "bright_blue",
    "SCHEDULED": "bright_blue",
    "RETRY_SCHEDULED": "yellow",
    "IN_FLIGHT": "magenta",
    "DEAD": "red",
    "COMPLETED": "green",
    "PENDING": "cyan",
    "CLAIMED": "magenta",
    "PUBLISHED": "green",
    "DAMAGED": "bold red",
}
WIDTH: Final = 80  # of a terminal that does not tell its own
_COMMAND: Final = re.compile(r"`[^`]*`|--[a-z-]+ \S+")
_UNBROKEN: Final = "\ue000"  # a space within a command; `printable` escapes this character elsewhere


def echo_json(line: str, *, err: bool = False) -> None:
    """Prints one line of JSON; for a terminal, control characters are escaped."""
    stream = sys.stderr if err else sys.stdout
    click.echo(escape_json(line) if stream.isatty() else line, err=err)


def wrap_text(text: str, width: int, indent: str = "") -> str:
    """The text in lines that end between words, all but the first with `indent`. Commands in backticks are not broken,
    nor are options parted from their values, so that they can be copied."""
    kept = _COMMAND.sub(lambda found: found[0].replace(" ", _UNBROKEN), text)
    lines = textwrap.wrap(kept, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace(_UNBROKEN, " ")


def wrap_message(text: str) -> str:
    """A sentence for stderr: on a terminal in lines that end between words, else unchanged."""
    if not sys.stderr.isatty():
        return text
    indent = text[: len(text) - len(text.lstrip())]
    return wrap_text(text, _terminal_width(), indent)


def _terminal_width() -> int:
    """Columns of the terminal on stderr."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or WIDTH
    except OSError:
        return WIDTH


def can_ask() -> bool:
    """Whether a person can answer a question."""
    return sys.stdin.isatty()


class Output:
    """Prints results on stdout; notes, questions and progress on stderr."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    @property
    def terminal(self) -> bool:
        """Whether results are shown on a terminal, with colours."""
        return sys.stdout.isatty() and not self.as_json

    # --- results -------------------------------------------------------------------------------------------------

    def document(self, data: Any, text: str) -> None:
        """Prints one result: `data` with --json, else `text`."""
        if self.as_json:
            self.json(data)
        else:
            for line in text.split("\n"):
                self.paragraph(line)

    def json(self, data: Any) -> None:
        """Prints one line of JSON."""
        import msgspec

        echo_json(msgspec.json.encode(data).decode())

    def text(self, text: str, style: str = "") -> None:
        """Prints one line; `style` is for terminals."""
        if self.terminal:
            from rich.text import Text

            self.console.print(Text(text, style=style), soft_wrap=True)
        else:
            click.echo(text)

    def paragraph(self, text: str, style: str = "", indent: str = "") -> None:
        """Prints a text; on a terminal in lines that end between words, all but the first with `indent`."""
        self.text(wrap_text(text, self.console.width, indent) if self.terminal else text, style)

    def field(self, name: str, value: str) -> None:
        """Prints a name and its value; a phase or state at the beginning of the value gets its colour."""
        if not self.terminal:
            click.echo(f"{name:14}{value}")
            return
        from rich.text import Text

        word = value.partition(":")[0]
        wrapped = wrap_text(f"{name:14}{value}", self.console.width, " " * 14)
        line = Text(wrapped)
        line.stylize("bold", 0, 14)
        if word in STYLES:
            line.stylize(STYLES[word], 14, 14 + len(word))
        self.console.print(line, soft_wrap=True)

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        right: Sequence[str] = (),
        wrap: str = "",
        keep: str = "",
    ) -> None:
        """Prints a table. On a narrow terminal columns are shortened or left out, never the first one; the cells of the
        column `wrap` take several lines instead, and `keep` is not left out. In a pipe the table is complete."""
        cells = [[printable(cell) for cell in row] for row in rows]
        if self.terminal:
            fitting = fit_columns(columns, cells, self.console.width, right, wrap, keep)
            self._rich_table(columns, cells, right, wrap, fitting)
            return
        widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
        for row in (columns, *cells):
            parts = [
                cell.rjust(width) if name in right else cell.ljust(width)
                for name, cell, width in zip(columns, row, widths, strict=True)
            ]
            click.echo("  ".join(parts).rstrip())

    def _rich_table(
        self,
        columns: Sequence[str],
        cells: list[list[str]],
        right: Sequence[str],
        wrap: str,
        widths: dict[int, int],
    ) -> None:
        from rich.text import Text

        last = list(widths)[-1]

        def lines_of(number: int, cell: Text) -> list[Text]:
            if columns[number] == wrap:
                return list(cell.wrap(self.console, widths[number], overflow="fold"))
            cell.truncate(widths[number], overflow="ellipsis")
            return [cell]

        def print_row(row: Sequence[str], style: str | None) -> None:
            found = {
                number: lines_of(number, Text(row[number], STYLES.get(row[number], "") if style is None else style))
                for number in widths
            }
            for at in range(max(map(len, found.values()))):
                line = Text()
                for number, parts in found.items():
                    cell = parts[at] if at < len(parts) else Text()
                    cell.align("right" if columns[number] in right else "left", widths[number])
                    line.append_text(cell).append("" if number == last else " " * GAP)
                line.rstrip()
                self.console.print(line, soft_wrap=True)

        print_row(columns, "bold")
        for row in cells:
            print_row(row, None)

    def styled(self, word: str) -> Text:
        """A phase or state in its colour; any other word without one."""
        from rich.text import Text

        return Text(word, style=STYLES.get(word, ""))

    @cached_property
    def console(self) -> Console:
        """The console of rich, for terminals only."""
        from rich.console import Console

        return Console(highlight=False, markup=False, emoji=False)

    # --- beside the results --------------------------------------------------------------------------------------

    def note(self, text: str, **data: Any) -> None:
        """Prints a remark on stderr; with --json an object with `note` and the fields of `data`."""
        if self.as_json:
            echo_json(json.dumps({"note": text, **data}, ensure_ascii=False), err=True)
        else:
            click.echo(wrap_message(printable(text)), err=True)

    @contextmanager
    def progress(self, label: str, total: int | None = None) -> Iterator[Callable[..., None]]:
        """A progress bar on a terminal, nothing in a pipe. Yields a function of the number done and, optionally, a new
        total."""
        if self.as_json or not sys.stderr.isatty():
            yield lambda done, of=None: None  # noqa: ARG005 - as below
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(label, total=total)
            yield lambda done, of=None: bar.update(task, completed=done, total=total if of is None else of)
