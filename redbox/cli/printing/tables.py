"""How wide the columns of a table are on a terminal, and which of them are left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

NARROWEST: Final = 10  # minimum width of a column that is shortened
GAP: Final = 2
#: Columns in the order in which they are shortened, with their minimum widths. The other columns of text follow, the
#: last one first, down to NARROWEST. The first column of a table is to be copied, and is never shortened.
SHORTENED: Final = {"TYPE": 8, "KEY": 8, "RULE": 8, "BY": 10, "WHO": 12, "LAST ERROR": 20, "ERROR": 20}
WRAPPED: Final = 24  # minimum width of a column whose cells take several lines
#: Columns that are left out if the table is still too wide, the first one first.
OPTIONAL: Final = ("ATTEMPTS", "KEY", "ERROR", "WAITING", "SCHEDULED", "COMPLETED", "RETRY")


def fit_columns(
    columns: Sequence[str],
    cells: Sequence[Sequence[str]],
    width: int,
    right: Sequence[str],
    wrap: str = "",
    keep: str = "",
) -> dict[int, int]:
    """The numbers of the columns that are shown, with their widths. Empty columns are left out. `keep` is shortened
    after all others, and not left out; errors make room for it."""
    from rich.cells import cell_len

    natural = {
        number: max(cell_len(name), *(cell_len(row[number]) for row in cells))
        for number, name in enumerate(columns)
        if not number or any(row[number] for row in cells)
    }
    texts = [number for number in natural if number and columns[number] not in right]
    short_errors = {"LAST ERROR": NARROWEST, "ERROR": NARROWEST} if keep else {}
    for least in (SHORTENED | short_errors | {wrap: WRAPPED}, {}):
        shown = dict(natural)
        for left_out in (None, *(name for name in OPTIONAL if name != keep)):
            shown = {number: size for number, size in shown.items() if columns[number] != left_out}
            widths = _shorten(shown, _in_order(columns, texts, wrap, keep), columns, least, width)
            if _excess(widths, width) <= 0:
                return widths
    return widths


def _in_order(columns: Sequence[str], texts: list[int], wrap: str, keep: str) -> list[int]:
    """Columns of text in the order in which they are shortened."""
    order = [wrap, *SHORTENED]
    return sorted(texts, key=lambda number: (columns[number] == keep, _place(order, columns[number]), -number))


def _place(order: list[str], name: str) -> int:
    return order.index(name) if name in order else len(order)


def _shorten(
    natural: dict[int, int], order: list[int], columns: Sequence[str], least: dict[str, int], width: int
) -> dict[int, int]:
    widths = dict(natural)
    for number in order:
        if number in widths:
            minimum = min(widths[number], least.get(columns[number], NARROWEST))
            widths[number] = max(minimum, widths[number] - max(0, _excess(widths, width)))
    return widths


def _excess(widths: dict[int, int], width: int) -> int:
    return sum(widths.values()) + GAP * (len(widths) - 1) - width
