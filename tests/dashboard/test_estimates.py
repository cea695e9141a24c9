"""Counts that are estimated, or made from a part of the events, are shown as such."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.req("SF-6"), pytest.mark.timeout(90)]

Open = Callable[..., Any]


def test_an_estimated_count_is_shown_as_one(open_page: Open, service: str):
    page = open_page(f"{service}/#/million/incidents")
    row = page.get_by_role("row").filter(has_text="HTTP 422")
    row.get_by_text("about 1,048,300 dead").wait_for()
    page.get_by_text("From a sample of the newest events").wait_for()
    page.get_by_text("last full count 12 min ago").wait_for()
    row.get_by_role("link", name="HTTP 422").click()
    page.get_by_role("link", name="about 1,048,300 dead").wait_for()
    page.get_by_role("button", name="Replay about 1,048,300…").click()
    page.get_by_role("dialog", name="Replay about 1,048,300 events").wait_for()


def test_a_count_of_a_bounded_search_is_the_least_there_are(open_page: Open, service: str):
    page = open_page(f"{service}/#/million/incidents?since=1h")
    page.get_by_text("at least 9,900 dead").wait_for()
    page.get_by_text("Only the newest 10,000 events were read").wait_for()


def test_an_exact_count_has_no_remark(open_page: Open, service: str):
    page = open_page(f"{service}/#/breaker/incidents")
    page.get_by_role("link", name="200 dead").wait_for()
    assert "about" not in page.locator("main").inner_text()
    assert "sample" not in page.locator("main").inner_text()


def test_the_headline_counts_all_errors_of_dead_events(open_page: Open, service: str):
    page = open_page(f"{service}/#/million")
    page.get_by_role("link", name="1,048,576 dead events with at least 7 different errors").wait_for()
    assert page.get_by_role("link", name="Incidents 8", exact=True).count() == 1
    page.goto(f"{service}/#/breaker")
    page.get_by_role("link", name="31 dead events with the same error").wait_for()
