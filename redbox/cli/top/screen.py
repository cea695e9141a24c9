"""Draws the screen: a list of lines that fits the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from io import StringIO
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from redbox.arguments import counted
from redbox.cli.printing import box_view, records, relay_view
from redbox.cli.printing.output import STYLES, printable
from redbox.cli.top.view import SERIES, View
from redbox.durations import format_duration

if TYPE_CHECKING:
    from redbox.box.desk.recent_errors import RecentError
    from redbox.box.reports import RelayReport, Stats

BLOCKS: Final = "▁▂▃▄▅▆▇█"
HELP: Final = (
    "p      pause the box; asks for the reason",
    "r      resume the box; asks for the reason",
    "i, ⏎   explain one event, by its id",
    "w      explain why events are not delivered",
    "?      this help",
    "q      quit",
    "Esc    back",
    "",
    "The screen reads the counts once per second, and the errors of the newest 200 dead events every 10 seconds.",
    "Rates are events per second; failed are attempts that failed.",
)
_SERIES_STYLES: Final = {"put": "cyan", "published": "green", "failed": "red"}
_KEYS: Final = (("p", "pause"), ("r", "resume"), ("i", "event"), ("w", "why"), ("?", "help"), ("q", "quit"))
_LEAST_ROWS: Final = 2  # of the relays, and of the errors
_CONSOLE: Final = Console(file=StringIO(), legacy_windows=False)  # to wrap text


def render(lines: Sequence[Text], width: int, color_system: str | None) -> list[str]:
    """The lines with the codes of the terminal."""
    out = StringIO()
    console = Console(
        file=out, width=width, force_terminal=True, color_system=color_system, highlight=False,  # type: ignore[arg-type]
        markup=False, emoji=False, legacy_windows=False,
    )  # fmt: skip
    for line in lines:
        console.print(line, no_wrap=True, overflow="crop", crop=True, soft_wrap=False)
    return out.getvalue().split("\n")[: len(lines)]


def draw(view: View, width: int, height: int) -> list[Text]:
    """The whole screen: exactly `height` lines of at most `width` columns."""
    body = max(0, height - 2)
    if view.mode == "help":
        middle = [part for line in HELP for part in _wrapped(line, width)]
    elif view.mode == "event":
        middle = [part for line in view.pages[:1] for part in _wrapped(line, width, "bold")]
        middle += [part for line in view.pages[1:] for part in _wrapped(line, width)]
    elif view.stats is None:
        middle = []
    else:
        middle = _overview(view, view.stats, width, body)
    middle = middle[:body] + [Text()] * max(0, body - len(middle))
    lines = [_title(view, width), *middle, _footer(view, width)]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines[:height]


def sparkline(values: Iterable[float | None], width: int) -> str:
    """One block per value, the newest at the right; a blank where a value is not known."""
    shown = list(values)[-width:] if width > 0 else []
    most = max((value for value in shown if value is not None), default=0.0)

    def block(value: float | None) -> str:
        if value is None:
            return " "
        if value <= 0 or most <= 0:
            return BLOCKS[0]
        return BLOCKS[min(len(BLOCKS) - 1, 1 + int(value / most * (len(BLOCKS) - 2)))]

    return "".join(map(block, shown)).rjust(max(0, width))


# --- parts -----------------------------------------------------------------------------------------------------


def _title(view: View, width: int) -> Text:
    left = Text.assemble((" redbox top ", "bold reverse"), " ")
    if view.stats is not None:
        left.append(f"box {view.stats.box}", "bold").append(f" on {printable(view.where)}")
    clock = "" if view.stats is None else records.iso(view.stats.at, brief=True)[11:]
    right = Text(clock, style="dim")
    left.truncate(max(1, width - len(clock) - 1), overflow="ellipsis")
    return left.append(" " * max(1, width - left.cell_len - len(clock))).append_text(right)


def _footer(view: View, width: int) -> Text:
    if view.mode in ("ask id", "ask why", "confirm"):
        line = Text.assemble((view.prompt, "bold"), " ", printable(view.typed), ("▏", "blink"))
        excess = line.cell_len - width  # the end of a long answer is what is being typed
        return line[excess:] if excess > 0 else line
    if view.mode in ("help", "event"):
        return Text("Esc back  q quit", style="dim")
    line = Text(f"{view.message}  ", style="bold yellow") if view.message else Text()
    for key, word in _KEYS:
        line.append(f" {key} ", "reverse").append(f" {word}  ")
    return line


def _overview(view: View, stats: Stats, width: int, height: int) -> list[Text]:
    top = _state(view, stats, width) + _rates(view, width) + [Text()] + _phases(stats, width)
    alarms = box_view.no_relay(stats) + box_view.alarms(stats)
    top += [part for text in alarms for part in _wrapped(text, width, "red")]
    left = height - len(top)
    errors = _errors(view.errors, width)
    room = left - (min(len(errors), _LEAST_ROWS + 2) if errors else 0)  # with an empty line and a header
    relays = _relays(stats.relays, width, max(room, 0))
    return top + relays + _cut(errors, left - len(relays), "error")


def _cut(lines: list[Text], room: int, noun: str) -> list[Text]:
    """The lines that fit; the last one says how many do not."""
    if len(lines) <= room:
        return lines
    if room < _LEAST_ROWS + 1:
        return []
    hidden = len(lines) - room + 1
    return [*lines[: room - 1], Text(f"and {counted(hidden, f'more {noun}')}", style="dim")]


def _state(view: View, stats: Stats, width: int) -> list[Text]:
    """At least one line, so that the rest of the screen seldom jumps."""
    if view.away:
        return _wrapped(f"THE STORE DOES NOT ANSWER: {printable(view.away)}", width, "bold white on red")
    limits = [box_view.limits_in_words(stats)] if stats.limits_reached else []
    return _wrapped("; ".join([*box_view.pauses(stats, view.paused_keys), *limits]), width, "bold yellow")


def _wrapped(text: str, width: int, style: str = "") -> list[Text]:
    """The text in lines that end between words; at least one."""
    return list(Text(text, style).wrap(_CONSOLE, max(1, width))) or [Text()]


def _rates(view: View, width: int) -> list[Text]:
    lines = []
    for name in SERIES:
        values = view.rates[name]
        room = max(0, width - 40)
        known = [value for value in list(values)[-room or None :] if value is not None]
        now = "–" if not values or values[-1] is None else relay_view.format_rate(values[-1])
        peak = f"max {relay_view.format_rate(max(known))}" if known else ""
        lines.append(
            Text.assemble(
                (f"{name:12}", "bold"),
                f"{now:>10}  ",
                (sparkline(values, room), _SERIES_STYLES[name]),
                ("  " + peak, "dim"),
            )
        )
    return lines


def _phases(stats: Stats, width: int) -> list[Text]:
    counts = {phase.value: count for phase, count in stats.phases.items()}
    counts = {"AVAILABLE": counts.pop("AVAILABLE"), **counts}
    remarks = box_view.phase_remarks(stats)
    oldest = "" if stats.oldest_available is None else f"oldest {format_duration(stats.oldest_available)}"
    waits = f"{stats.waiting:,} waiting" if stats.waiting else ""
    remarks["AVAILABLE"] = "; ".join(filter(None, (oldest, waits)))
    if stats.next_due is not None:
        both = counts["SCHEDULED"] and counts["RETRY_SCHEDULED"]
        words = "next event or retry" if both else "next"
        remarks["SCHEDULED" if counts["SCHEDULED"] else "RETRY_SCHEDULED"] = (
            f"{words} due in {format_duration(stats.next_due)}"
        )
    most, digits = max(counts.values()), max(len(f"{count:,}") for count in counts.values())
    room = min(40, max(5, width // 5))
    lines = []
    for phase, count in counts.items():
        length = max(1, round(room * count / most)) if count else 0
        style = STYLES[phase]
        lines.append(
            Text.assemble(
                (f"{phase:16}", style),
                f"{count:>{digits},}  ",
                ("█" * length, style),
                " " * (room - length + 2),
                (remarks.get(phase, ""), "dim"),
            )
        )
    return lines


def _relays(relays: Sequence[RelayReport], width: int, room: int) -> list[Text]:
    """The table, and those of the texts below it for which there is room."""
    found = relay_view.view_relays(relays, width)
    table = [Text(line, style) for line, style in found.table]
    texts: list[Text] = []
    for text in found.texts:
        lines = _wrapped(text, width)
        if len(texts) + len(lines) + min(len(table), _LEAST_ROWS + 2) < room:
            texts += lines
    return [*_cut([Text(), *table], room - len(texts), "relay"), *texts] if table else []


def _errors(errors: Sequence[RecentError], width: int) -> list[Text]:
    if not errors:
        return []
    rows = [(f"{each.count:,}", each.error or "(no error)", each.event_id) for each in errors]
    header = ("DEAD", "ERRORS OF THE NEWEST DEAD EVENTS", "NEWEST EVENT")
    return [Text(), *_table(header, rows, [""] * len(rows), width, right=(0,), wide=1)]


def _table(
    header: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
    styles: Sequence[str],
    width: int,
    *,
    right: tuple[int, ...],
    wide: int,
) -> list[Text]:
    """Lines of equal columns; the column `wide` is shortened first, then the first one."""
    cells = [tuple(map(printable, row)) for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(header, *cells, strict=True)]
    for number in (wide, 0):
        excess = sum(widths) + 2 * (len(widths) - 1) - width
        widths[number] = max(min(widths[number], 8), widths[number] - max(0, excess))

    def line(row: tuple[str, ...], style: str) -> Text:
        found = Text()
        for number, text in enumerate(row):
            cell = Text(text, style)
            cell.truncate(widths[number], overflow="ellipsis")
            cell.align("right" if number in right else "left", widths[number])
            found.append_text(cell).append("  ")
        found.rstrip()
        return found

    return [line(header, "bold"), *(line(row, style) for row, style in zip(cells, styles, strict=True))]
