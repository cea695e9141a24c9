"""What the page signals: its mark, its tiles, keys that wait, and what fits a phone."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from tests.dashboard.fake_service import event_id

pytestmark = [pytest.mark.req("SF-6"), pytest.mark.timeout(90)]

Open = Callable[..., Any]


def with_live(page: Any, script: str) -> None:
    """Runs a script on a copy of the live data, which the page then shows; the feed stops."""
    page.wait_for_function("async () => (await import('/static/store.js')).state.live.stats")
    page.evaluate(
        "async () => { const { rest } = await import('/static/live.js');"
        " const { change, state } = await import('/static/store.js'); rest();"
        f" const live = structuredClone(state.live); {script}; change({{ live, connection: 'live' }}); }}"
    )


# --- the mark --------------------------------------------------------------------------------------------------------


def test_the_mark_is_amber_while_events_die(open_page: Open, service: str):
    page = open_page(f"{service}/#/million")
    page.locator(".why-warn").get_by_role("img", name="Attention").wait_for()
    with_live(
        page, "for (const group of live.groups) group.last_seen = '2026-01-01T00:00:00Z'; live.rates_last.dead = 0"
    )
    page.locator(".why-ok").wait_for()


def test_a_box_without_a_relay_is_not_marked_as_fine(open_page: Open, service: str):
    page = open_page(f"{service}/#/empty")
    page.locator(".why").get_by_text("No relay is running").wait_for()
    page.locator(".why-warn").get_by_role("img", name="Attention").wait_for()


def test_a_change_of_the_situation_is_spoken_and_a_change_of_a_number_is_not(open_page: Open, service: str):
    page = open_page(f"{service}/#/million")
    spoken = page.locator("main [role=status].hidden")
    page.locator(".why").get_by_text("Events are flowing").wait_for()
    with_live(page, "live.rates_last.published = 98; live.rates_last.dead = 1")
    page.locator(".why").get_by_text("98/s published").wait_for()
    assert spoken.text_content() == ""
    assert page.locator("main [aria-live], .why [role=status], .why [role=alert]").count() == 0
    with_live(page, "live.why.situation = 'paused'; live.why.sentences = ['The box was paused.', '4 events wait.']")
    page.locator(".why-bad").wait_for()
    spoken.get_by_text("Problem: The box was paused.").wait_for(state="attached")


def test_an_empty_box_has_no_charts_without_lines(open_page: Open, service: str):
    page = open_page(f"{service}/#/empty")
    page.get_by_text("No events yet.").wait_for()
    assert page.get_by_text("no samples yet").filter(visible=True).count() == 0


def test_the_charts_lead_to_the_events_that_they_count(open_page: Open, service: str):
    page = open_page(f"{service}/#/million?window=24h")
    for name, address in (
        ("Put", "events"),
        ("Published", "events?state=PUBLISHED"),
        ("Failed", "incidents?since=24h"),
    ):
        link = page.locator(".chart").get_by_role("link", name=name, exact=True)
        assert link.get_attribute("href") == f"#/million/{address}"


# --- tiles -----------------------------------------------------------------------------------------------------------


def test_events_that_wait_are_not_counted_twice_without_a_word(open_page: Open, service: str):
    page = open_page(f"{service}/#/million")
    available = page.get_by_role("link", name=re.compile("Available"))
    available.get_by_text("oldest 300 ms").wait_for()
    with_live(
        page, "live.stats.phases.AVAILABLE = live.stats.waiting = live.stats.waiting_due = 79; live.stats.blocked = 0"
    )
    waiting = page.get_by_role("group", name="Events by phase").get_by_role("link", name=re.compile("Waiting"))
    waiting.get_by_text("of the 79 available").wait_for()
    assert "wait" not in available.inner_text()


# --- keys ------------------------------------------------------------------------------------------------------------


def test_keys_whose_head_waits_for_a_retry_are_listed(open_page: Open, service: str):
    page = open_page(f"{service}/#/breaker/keys")
    row = page.get_by_role("table", name="Keys that wait").get_by_role("row").filter(has_text="order-4")
    row.get_by_text("Retry").wait_for()
    row.get_by_role("link", name="8 events").wait_for()
    row.locator(f"a[title='{event_id(13)}']").wait_for()
    row.get_by_text(re.compile("in [0-9]+ s")).wait_for()


def test_the_overview_lists_blocked_keys_and_others_that_wait_together(open_page: Open, service: str):
    page = open_page(f"{service}/#/breaker")
    rows = page.get_by_role("table", name="Ordering keys that wait").locator("tbody tr")
    rows.nth(2).wait_for()
    assert "Dead 12 min ago" in rows.filter(has_text="order-7").inner_text()
    assert "Retry in" in rows.filter(has_text="order-4").inner_text()


def test_the_overview_does_not_say_that_no_key_waits_while_events_do(open_page: Open, service: str):
    page = open_page(f"{service}/#/paused")
    page.route("**/v1/boxes/paused/keys", lambda route: route.fulfill(json={"blocked": [], "paused": []}))
    page.reload()
    keys = page.locator(".section").filter(has=page.get_by_role("heading", name="Ordering keys that wait"))
    keys.get_by_text("40 events wait behind other events of their keys.").wait_for()
    assert "dead_head" not in keys.inner_text()


def test_no_key_waits_in_an_empty_box(open_page: Open, service: str):
    page = open_page(f"{service}/#/empty/keys")
    page.get_by_text("No event waits behind another one of its key.").wait_for()


def test_the_field_for_a_key_shows_its_whole_hint(open_page: Open, service: str):
    for width in (1280, 390):
        page = open_page(f"{service}/#/empty/keys", width=width)
        field = page.get_by_role("searchbox", name="Ordering key")
        assert field.evaluate("each => each.scrollWidth <= each.clientWidth && each.clientWidth > 230")


# --- search ----------------------------------------------------------------------------------------------------------


def test_an_event_is_found_by_an_id_of_any_shape(open_page: Open, service: str):
    page = open_page(f"{service}/#/million")
    page.locator(".why").get_by_text("Events are flowing").wait_for()
    page.keyboard.press("/")
    page.keyboard.type("bad-1")
    page.keyboard.press("Enter")
    page.get_by_text("It has been DEAD").wait_for()
    assert page.url.endswith("/event/bad-1")


def test_an_id_that_does_not_exist_is_searched_for_as_text(open_page: Open, service: str):
    page = open_page(f"{service}/#/million")
    page.locator(".why").get_by_text("Events are flowing").wait_for()
    page.keyboard.press("/")
    page.keyboard.type("bad-1")
    page.get_by_role("option", name="Open event bad-1").wait_for()
    page.keyboard.type("0")
    page.get_by_role("option", name="Open event").wait_for(state="detached")
    page.keyboard.press("Enter")
    page.get_by_text("text:").wait_for()
    assert page.url.endswith("events?text=bad-10")


# --- one event -------------------------------------------------------------------------------------------------------


def test_attempts_include_the_one_that_succeeded_and_how_long_it_took(open_page: Open, service: str):
    page = open_page(f"{service}/#/flowing/event/{event_id(3)}")
    with page.expect_response("**/why"):
        page.route(
            "**/events/published",
            lambda route: route.fulfill(json=published(route.fetch(url=route.request.url).json())),
        )
        page.evaluate("location.hash = '#/million/event/published'")
    rows = page.get_by_role("table", name="Attempts").locator("tbody tr")
    rows.last.get_by_text("✓ published").wait_for()
    took = page.get_by_role("table", name="Attempts").locator("thead th").all_inner_texts().index("Took")
    # Two retried, one of them by a version that did not measure it, and one published; a replay is no attempt.
    assert [row.locator("td").nth(took).inner_text() for row in rows.all()] == ["–", "30 s", "250 ms"]
    assert page.locator(".diagram").get_by_text("replayed").count() == 1


def test_the_steps_say_that_earlier_attempts_are_not_kept(open_page: Open, service: str):
    page = open_page(f"{service}/#/million/event/{event_id(3)}")
    page.get_by_text("12 in all; the last 2 are kept").wait_for()
    steps = page.locator(".diagram .step-word").all_inner_texts()
    assert steps == ["Put", "10 earlier attempts", "Retried", "DEAD"]


def test_a_claimed_event_does_not_miss_the_attempt_in_flight(open_page: Open, service: str):
    page = open_page(f"{service}/#/flowing")
    page.route(
        "**/events/claimed",
        lambda route: route.fulfill(
            json=published(fetched(service))
            | {"state": "CLAIMED", "phase": "IN_FLIGHT", "attempts": 3, "published_at": None}
        ),
    )
    page.evaluate("location.hash = '#/million/event/claimed'")
    rows = page.get_by_role("table", name="Attempts").locator("tbody tr")
    rows.nth(1).wait_for()
    assert "in all" not in page.locator("main").inner_text()


def test_an_event_leads_to_others_with_the_same_error(open_page: Open, service: str):
    page = open_page(f"{service}/#/million/event/{event_id(3)}")
    page.get_by_role("link", name="Events with the same error").click()
    page.get_by_role("button", name="Remove the filter error: HTTP 422 amount must be a number").wait_for()
    assert "state=DEAD" in page.url


def fetched(service: str) -> dict[str, Any]:
    """The record of a dead event."""
    with urllib.request.urlopen(f"{service}/v1/boxes/million/events/{event_id(3)}") as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def published(record: dict[str, Any]) -> dict[str, Any]:
    """The record of an event that was retried, replayed and published."""
    step = {"by": "web-7f9c", "number": 3, "error": ""}
    return record | {
        "event_id": "published",
        "state": "PUBLISHED",
        "phase": "COMPLETED",
        "died_at": None,
        "claimed_at": None,
        "claimed_by": None,
        "published_at": "2026-01-01T00:05:00.250Z",
        "published_by": "web-7f9c",
        "published_seconds": 0.25,
        "history": [
            {**step, "at": "2026-01-01T00:00:00Z", "outcome": "retried", "error": "HTTP 500", "seconds": None},
            {**step, "at": "2026-01-01T00:01:00Z", "outcome": "retried", "error": "HTTP 500", "seconds": 30.02},
            {**step, "at": "2026-01-01T00:04:00Z", "outcome": "replayed", "by": "ada", "seconds": None},
        ],
    }


# --- jobs ------------------------------------------------------------------------------------------------------------


def test_a_small_replay_has_a_small_canary(open_page: Open, service: str):
    page = open_page(f"{service}/#/million")
    sizes = "Promise.all([1, 3, 20, 21, 50].map(async (n) => (await import('/static/jobs.js')).canaryOf(n)))"
    assert page.evaluate(sizes) == [0, 1, 4, 4, 10]


def test_the_bar_of_running_jobs_is_not_shown_behind_a_dialog(open_page: Open, fresh_service: str):
    page = open_page(f"{fresh_service}/#/million/incident/55242f13")
    page.get_by_role("button", name="Replay about").click()
    page.get_by_role("button", name="Replay 20 first").click()
    page.get_by_role("button", name="Continue in the background").click()
    page.locator("#tray").get_by_role("button", name="Show").wait_for()
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()
    assert not page.locator("#tray").is_visible()


# --- on a phone ------------------------------------------------------------------------------------------------------


def test_the_header_of_a_phone_names_the_search_and_shows_every_view(open_page: Open, service: str):
    page = open_page(f"{service}/#/million", width=390)
    page.get_by_role("button", name="Search").get_by_text("Search", exact=True).wait_for()
    assert page.get_by_role("button", name="Search").locator("kbd").is_visible() is False
    ends = page.evaluate(
        "[...document.querySelectorAll('header nav a')].map((each) => each.getBoundingClientRect().right)"
    )
    assert len(ends) == 8
    assert max(ends) <= 390


def test_a_card_leaves_out_rows_without_a_value(open_page: Open, service: str):
    page = open_page(f"{service}/#/million/events", width=390)
    page.locator("[data-row]").first.wait_for()
    shown = page.locator("td:visible").all_inner_texts()
    assert shown
    assert "–" not in [text.strip() for text in shown]


def test_help_says_first_how_to_search(open_page: Open, service: str):
    page = open_page(f"{service}/#/million", width=390)
    page.get_by_role("button", name="Help").click()
    page.get_by_role("dialog").get_by_text("Search finds events by id, type, key, error or text").wait_for()
