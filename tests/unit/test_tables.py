"""Tables of the commands fit the terminal."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.cells import cell_len
from rich.console import Console

from redbox.cli.printing.output import Output, wrap_text
from redbox.cli.stats import COLUMNS

LOG = ("AT", "ACTION", "EVENTS", "WHO", "WHY", "DETAIL")


class Terminal(Output):
    """A terminal of 80 columns that keeps what is printed."""

    terminal = True  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__(as_json=False)
        self.printed = StringIO()
        self.console = Console(file=self.printed, width=80, highlight=False, markup=False, emoji=False)


@pytest.mark.req("RO-1")
def test_a_log_with_long_texts_fits_80_columns() -> None:
    terminal = Terminal()
    why = "the payment provider asked us to hold everything back until their migration is over"
    row = ("2026-11-18 01:02:03", "reschedule", "1,000,000", "operator@a-long-host-name.example", why, "id " * 40)
    terminal.table(LOG, [row], right=("EVENTS",))
    head, line = terminal.printed.getvalue().splitlines()
    assert len(line) <= 80
    assert line.startswith("2026-11-18 01:02:03  reschedule  1,000,000  operator@")
    assert head.split() == list(LOG)


@pytest.mark.req("RO-1")
def test_the_counts_of_boxes_fit_80_columns() -> None:
    terminal = Terminal()
    terminal.table(("BOX", *COLUMNS, "REMARK"), [("orders", *("123,456" for _ in COLUMNS), "")], right=COLUMNS)
    assert all(len(line) <= 80 for line in terminal.printed.getvalue().splitlines())


DEAD_LIST = ("ID", "TYPE", "DEAD SINCE", "ATTEMPTS", "KEY", "LAST ERROR")
ID = "01938a4e-5b1f-7c3d-9e2a-6f0d1c2b3a49"


@pytest.mark.req("RO-1")
def test_the_error_of_a_dead_event_keeps_20_columns_and_the_least_useful_columns_are_left_out() -> None:
    terminal = Terminal()
    row = (ID, "invoice.correction.requested", "23 min ago", "10", "customer-4711", "HTTP 422 Unprocessable Content")
    terminal.table(DEAD_LIST, [row], right=("ATTEMPTS",))
    assert terminal.printed.getvalue().splitlines() == [
        f"{'ID':36}  TYPE      DEAD SINCE  LAST ERROR",
        f"{ID}  invoice…  23 min ago  HTTP 422 Unprocessa…",
    ]


@pytest.mark.req("RO-1")
def test_the_ordering_key_of_a_dead_event_comes_before_its_attempts_and_the_width_of_its_error() -> None:
    """It may block its line: docs/runbook.md."""
    terminal = Terminal()
    row = (ID, "invoice.correction.requested", "23 min ago", "10", "customer-4711", "HTTP 422 Unprocessable Content")
    terminal.table(DEAD_LIST, [row], right=("ATTEMPTS",), keep="KEY")
    assert terminal.printed.getvalue().splitlines() == [
        f"{'ID':36}  TYPE      DEAD SINCE  KEY       LAST ERROR",
        f"{ID}  invoice…  23 min ago  custome…  HTTP 422 …",
    ]


def test_a_table_that_fits_is_complete() -> None:
    terminal = Terminal()
    terminal.table(DEAD_LIST, [("e1", "a", "3 s ago", "1", "k", "HTTP 500")], right=("ATTEMPTS",))
    assert terminal.printed.getvalue().splitlines()[0].split() == " ".join(DEAD_LIST).split()


def test_a_reason_takes_as_many_lines_as_it_needs() -> None:
    terminal = Terminal()
    terminal.table(("REFUSED", "REASON"), [(ID, f"another live event holds its unique_key: {ID}")], wrap="REASON")
    _, first, second = terminal.printed.getvalue().splitlines()
    assert first == f"{ID}  another live event holds its unique_key:"
    assert second == f"{'':38}{ID}"


def test_wide_characters_count_twice() -> None:
    terminal = Terminal()
    terminal.table(("ID", "PROBLEM"), [(ID, "注文" * 40)], wrap="PROBLEM")
    assert all(cell_len(line) <= 80 for line in terminal.printed.getvalue().splitlines())


def test_a_command_is_not_broken_nor_an_option_parted_from_its_value() -> None:
    text = "start one with `redbox relay --to http://localhost:8080/events`, or wait with --canary-wait 5m"
    assert wrap_text(text, 40, "  ").splitlines() == [
        "start one with",
        "  `redbox relay --to http://localhost:8080/events`,",
        "  or wait with --canary-wait 5m",
    ]
