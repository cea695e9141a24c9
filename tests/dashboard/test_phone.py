"""The page on a phone: nothing is cut off, and the header leaves room for what is below it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

pytestmark = [pytest.mark.req("SF-6"), pytest.mark.timeout(90)]

Open = Callable[..., Any]
WIDTH: Final = 320


def test_a_dialog_is_not_cut_off_while_its_job_runs_and_after_it(open_page: Open, fresh_service: str):
    page = open_page(f"{fresh_service}/#/million/incident/55242f13", width=WIDTH)
    page.get_by_role("button", name="Replay about").click()
    dialog = page.get_by_role("dialog")
    for words in ("1,048,300 events match", "Waiting for the canary", "1,048,300 events were replayed"):
        dialog.get_by_text(words).wait_for()
        assert dialog.evaluate("each => each.scrollWidth - each.clientWidth") <= 0, words
        if words.endswith("match"):
            dialog.get_by_role("button", name="Replay 20 first").click()


def test_the_header_takes_two_lines_of_views_and_scrolls_away(open_page: Open, service: str):
    page = open_page(f"{service}/#/million/events?state=DEAD", width=WIDTH)
    page.locator("[data-row]").first.wait_for()
    page.get_by_role("link", name="Incidents 8").wait_for()
    tops = page.evaluate(
        "[...document.querySelectorAll('header nav a')].map((each) => each.getBoundingClientRect().top)"
    )
    assert len(set(tops)) == 2
    page.mouse.wheel(0, 2000)
    page.wait_for_function("() => document.querySelector('header').getBoundingClientRect().bottom < 0")


def test_the_tiles_fill_their_grid(open_page: Open, service: str):
    for width in (WIDTH, 900):
        page = open_page(f"{service}/#/million", width=width)
        tiles = page.get_by_role("group", name="Events by phase")
        tiles.wait_for()
        ends = tiles.evaluate(
            "each => [each.getBoundingClientRect().right, each.lastElementChild.getBoundingClientRect().right]"
        )
        assert ends[0] - ends[1] <= 2


def test_the_names_of_filters_are_not_broken(open_page: Open, service: str):
    page = open_page(f"{service}/#/million/events", width=WIDTH)
    page.get_by_role("combobox", name="Add a filter").click()
    names = page.get_by_role("listbox").locator("strong")
    names.first.wait_for()
    heights = [each.evaluate("each => each.getBoundingClientRect().height") for each in names.all()]
    assert max(heights) < 32


def test_rows_keep_their_roles_as_cards(open_page: Open, service: str):
    """Some browsers forget them if a table is drawn as blocks."""
    page = open_page(f"{service}/#/million/events?state=DEAD", width=WIDTH)
    page.locator("[data-row]").first.wait_for()
    roles = page.evaluate(
        "['table', 'thead', 'tbody', 'tr', 'th', 'td'].map((each) => document.querySelector(each).getAttribute('role'))"
    )
    assert roles == ["table", "rowgroup", "rowgroup", "row", "columnheader", "cell"]


@pytest.mark.parametrize("width", [360, 641, 768, 901, 1001, 1101])
def test_nothing_is_wider_than_a_tablet_or_half_a_screen(open_page: Open, service: str, width: int):
    views = {
        "million": "Put", "hostile": "Put", "million/events": "order.placed",
        "million/events?state=DEAD": "Dead since", "breaker/relays": "web-old-3", "million/log": "the provider is down",
    }  # fmt: skip
    page = open_page(f"{service}/#/flowing", width=width)
    for view, text in views.items():
        page.evaluate("view => { location.hash = `#/${view}`; }", view)
        page.locator("main").get_by_text(text, exact=view in ("million", "hostile")).first.wait_for(state="attached")
        wide = page.evaluate(
            """() => [document.documentElement, ...document.querySelectorAll('main .table, main .section, main .chart')]
              .filter((each) => each.scrollWidth > each.clientWidth + 1).map((each) => each.className)"""
        )
        assert wide == [], view
