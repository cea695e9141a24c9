"""Results: tables and colours on a terminal, aligned plain text in a pipe, JSON with --json.

Text from a box was written by others: it never reaches a terminal unescaped, nor as markup of rich.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import click

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
NARROWEST: Final = 12  # minimum width of a column that is shortened


def echo_json(line: str, *, err: bool = False) -> None:
    """Prints one line of JSON; for a terminal, control characters are escaped."""
    stream = sys.stderr if err else sys.stdout
    click.echo(escape_json(line) if stream.isatty() else line, err=err)


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
            click.echo(text)

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
        if self.terminal:
            width = self.console.width
            wrapped = textwrap.wrap(
                text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
            )
            text = "\n".join(wrapped)
        self.text(text, style)

    def field(self, name: str, value: str) -> None:
        """Prints a name and its value; a phase or state at the beginning of the value gets its colour."""
        if not self.terminal:
            click.echo(f"{name:14}{value}")
            return
        from rich.text import Text

        word = value.partition(":")[0]
        line = Text.assemble((f"{name:14}", "bold"), (word, STYLES.get(word, "")), value[len(word) :])
        self.console.print(line, soft_wrap=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()) -> None:
        """Prints a table. The first column is never shortened; in a pipe no column is."""
        cells = [[printable(cell) for cell in row] for row in rows]
        if self.terminal:
            self._rich_table(columns, cells, right)
            return
        widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
        for row in (columns, *cells):
            parts = [
                cell.rjust(width) if name in right else cell.ljust(width)
                for name, cell, width in zip(columns, row, widths, strict=True)
            ]
            click.echo("  ".join(parts).rstrip())

    def _rich_table(self, columns: Sequence[str], cells: list[list[str]], right: Sequence[str]) -> None:
        """Leaves out empty columns. On a narrow terminal it shortens the last column, then the second."""
        from rich.text import Text

        used = [number for number, name in enumerate(columns) if not number or any(row[number] for row in cells)]
        widths = {number: max(len(columns[number]), *(len(row[number]) for row in cells)) for number in used}
        for number in dict.fromkeys((used[-1], *used[1:2])):
            excess = sum(widths.values()) + 2 * (len(used) - 1) - self.console.width
            widths[number] = max(min(widths[number], NARROWEST), widths[number] - max(0, excess))

        def print_row(row: Sequence[str], style: str | None) -> None:
            line = Text()
            for number in used:
                cell = Text(row[number], STYLES.get(row[number], "") if style is None else style)
                cell.truncate(widths[number], overflow="ellipsis")
                cell.align("right" if columns[number] in right else "left", widths[number])
                line.append_text(cell).append("" if number == used[-1] else "  ")
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
            click.echo(printable(text), err=True)

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
