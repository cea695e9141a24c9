"""The relays of a box as text, for any width."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from redbox.arguments import counted
from redbox.cli.printing.output import printable
from redbox.durations import format_duration

if TYPE_CHECKING:
    from redbox.box.reports import RelayReport

_RIGHT: Final = ("RATE", "IN FLIGHT", "PUBLISHED", "FAILED")
#: Columns that are left out where they do not fit, the first one first. The others are always shown.
_OPTIONAL: Final = ("HOST", "TARGET", "RATE", "PUBLISHED", "FAILED")
_SHORTEST_NAME: Final = 18  # columns to which the name of a relay is shortened before others are left out
_MOST_TEXTS: Final = 4  # different errors
_GAP: Final = 2


class RelayView(NamedTuple):
    """A table, each line with its style, and sentences about what relays have in common."""

    table: list[tuple[str, str]]
    texts: list[str]


def view_relays(relays: Iterable[RelayReport], width: int | None, *, paused: bool = False) -> RelayView:
    """The relays with an open breaker first, the silent ones last. Without a width, nothing is shortened or left out;
    the texts are not wrapped. A `paused` box is not probed."""
    relays = sorted(relays, key=lambda relay: (not relay.alive, not relay.breaker_open, relay.name))
    if not relays:
        return RelayView([], [])
    rows = [_cells(relay, paused) for relay in relays]
    names = [name for name in rows[0] if name == "RELAY" or any(row[name] for row in rows)]
    widths = {name: max(_length(name), *(_length(row[name]) for row in rows)) for name in names}
    if width is not None:
        _fit(widths, width)
    styles = ["dim" if not relay.alive else "red" if relay.breaker_open else "" for relay in relays]
    header = {name: name for name in widths}
    table = [(_row(row, widths), style) for row, style in zip((header, *rows), ("bold", *styles), strict=True)]
    targets = [] if "TARGET" in widths else _grouped("target", relays, lambda relay: relay.target)
    return RelayView(table, _troubles(relays) + targets)


def _troubles(relays: list[RelayReport]) -> list[str]:
    """Why breakers are not closed, and the last errors: each text once, with the relays that report it."""
    reasons = _grouped("breaker", relays, lambda relay: relay.reason)
    return reasons + _grouped(
        "last error", relays, lambda relay: "" if relay.last_error in relay.reason else relay.last_error
    )


def format_rate(rate: float) -> str:
    """`0.5/s`, `12/s`, `1,250/s`."""
    return f"{rate:,.0f}/s" if rate >= 10 or rate == int(rate) else f"{rate:.1f}/s"


def _cells(relay: RelayReport, paused: bool) -> dict[str, str]:
    ago = _whole(relay.seen)
    cells = {
        "RELAY": relay.name,
        "SEEN": f"{ago} ago" if relay.alive else f"silent {' '.join(ago.split()[:2])}",
        "RATE": "" if relay.rate is None or not relay.alive else format_rate(relay.rate),
        "IN FLIGHT": f"{relay.in_flight:,}" if relay.alive else "",  # its claims may be those of another relay by now
        "PUBLISHED": f"{relay.published:,}",
        "FAILED": f"{relay.failed:,}",
        "BREAKER": relay.breaker + ("" if relay.breaker_since is None else f" for {_whole(relay.breaker_since)}"),
        "PROBE": "" if paused else _probe(relay),
        "HOST": f"{relay.host} ({relay.pid})",
        "TARGET": relay.target,
    }
    return {name: printable(cell) for name, cell in cells.items()}


def _probe(relay: RelayReport) -> str:
    """`in 12 s`; empty unless the relay is alive and its breaker open."""
    if not relay.alive or relay.next_probe is None:
        return ""
    return f"in {_whole(relay.next_probe)}" if relay.next_probe else "now"


def _whole(duration: timedelta) -> str:
    """In whole seconds, so that columns keep their widths."""
    return format_duration(max(1, math.ceil(duration.total_seconds())))


def _fit(widths: dict[str, int], width: int) -> None:
    """Leaves out columns until the others fit beside the name of the relay, which gets the rest."""

    def excess() -> int:
        return sum(widths.values()) + _GAP * (len(widths) - 1) - width

    shortest = min(widths["RELAY"], _SHORTEST_NAME)
    for name in _OPTIONAL:
        if excess() > widths["RELAY"] - shortest:
            widths.pop(name, None)
    widths["RELAY"] = max(shortest, widths["RELAY"] - max(0, excess()))


def _row(cells: dict[str, str], widths: dict[str, int]) -> str:
    found = []
    for name, width in widths.items():
        cell = _shortened(cells[name], width)
        blanks = " " * (width - _length(cell))
        found.append(blanks + cell if name in _RIGHT else cell + blanks)
    return (" " * _GAP).join(found).rstrip()


def _shortened(text: str, width: int) -> str:
    """The text without its middle: the names of relays often begin alike, and end alike."""
    if _length(text) <= width:
        return text
    head, tail = text, text
    while _length(head) > (width - 1) // 2:
        head = head[:-1]
    while _length(head) + _length(tail) > width - 1:
        tail = tail[1:]
    return f"{head}…{tail}"


def _length(text: str) -> int:
    """Columns of a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _grouped(what: str, relays: list[RelayReport], text_of: Callable[[RelayReport], str]) -> list[str]:
    """`breaker of 3 relays, such as a: HTTP 503`, once for each text."""
    named: dict[str, list[str]] = {}
    for relay in relays:
        if text := text_of(relay):
            named.setdefault(text, []).append(relay.name)
    found = []
    for text, names in list(named.items())[:_MOST_TEXTS]:
        whose = f"relay {names[0]}"
        if len(names) > 1:
            whose = f"{len(names):,} relays, such as {names[0]}"
            if len(names) == len(relays):
                whose = f"all {len(names):,} relays"
        found.append(printable(f"{what} of {whose}: {text}"))
    if len(named) > _MOST_TEXTS:
        found.append(f"{what} of other relays: {counted(len(named) - _MOST_TEXTS, 'more text')}; see --json")
    return found
