"""Incidents: what the list counts, where links lead, and what is shown during and after a replay."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.req("SF-6"), pytest.mark.timeout(90)]

Open = Callable[..., Any]


def start_replay(page: Any, why: str = "") -> Any:
    """Starts the replay of the incident that the page shows; returns its dialog."""
    page.get_by_role("button", name=re.compile("^Replay (about )?[0-9]")).click()
    page.get_by_label("Reason").fill(why)
    page.keyboard.press("Enter")
    return page.get_by_role("dialog")


# --- after a replay --------------------------------------------------------------------------------------------------


def test_a_replayed_incident_is_read_again_and_says_that_all_were_replayed(open_page: Open, fresh_service: str):
    page = open_page(f"{fresh_service}/#/hostile/incident/55242f13?state=DEAD")
    dialog = start_replay(page)
    dialog.get_by_text("200 events were replayed").wait_for()
    dialog.get_by_role("button", name="Close").last.click()
    page.get_by_role("heading", name="No event has this error any more").wait_for()
    main = page.locator("main")
    assert "All were replayed" in main.inner_text()
    assert main.get_by_role("button").count() == 0
    page.reload()
    page.get_by_role("heading", name="No event has this error any more").wait_for()
    assert main.get_by_role("alert").count() == 0
    assert "All were replayed" not in main.inner_text()
    main.get_by_role("link", name="Incidents").last.click()
    page.get_by_role("heading", name="Incidents").wait_for()


def test_a_replay_in_the_background_is_noticed_too(open_page: Open, fresh_service: str):
    page = open_page(f"{fresh_service}/#/hostile/incident/55242f13?state=DEAD")
    dialog = start_replay(page)
    dialog.get_by_role("button", name="Continue in the background").click()
    page.get_by_role("button", name="Show").click()  # each look is a step of the fake job
    page.get_by_role("dialog").get_by_text("200 events were replayed").wait_for()
    page.get_by_role("dialog").get_by_role("button", name="Close").last.click()
    page.get_by_text("All were replayed").wait_for()


def test_a_box_that_does_not_exist_is_no_repaired_incident(open_page: Open, service: str):
    page = open_page(f"{service}/#/nowhere/incident/55242f13")
    page.locator("main").get_by_text("there is no box 'nowhere'").wait_for()
    assert page.get_by_text("No event has this error").count() == 0


def test_a_failed_canary_says_what_became_of_all_events_and_what_to_do(open_page: Open, fresh_service: str):
    page = open_page(f"{fresh_service}/#/hostile/incident/55242f13?state=DEAD")
    dialog = start_replay(page, "fail")
    dialog.get_by_text("1 of 20 canary events is DEAD again, 19 are not settled yet").wait_for()
    dialog.get_by_text("180 events were not touched").wait_for()
    assert dialog.get_by_role("status").first.inner_text() == "✕ Stopped after 20 of 200 events"
    assert dialog.locator(".wizard-steps .failed").inner_text() == "Canary"
    assert dialog.locator(".wizard-steps [aria-current]").inner_text() == "Canary"
    dialog.get_by_role("button", name="Replay again").click()
    dialog.get_by_text("200 events match").wait_for()
    dialog.get_by_label("Reason").fill("fail")
    page.keyboard.press("Enter")
    dialog.get_by_role("link", name="Look at the error").click()
    page.get_by_text("HTTP 422").first.wait_for()
    assert "/event/" in page.url
    assert page.locator("dialog").count() == 0


def test_the_end_of_a_job_in_the_background_is_shown_until_someone_looks_at_it(open_page: Open, fresh_service: str):
    page = open_page(f"{fresh_service}/#/hostile/incident/55242f13?state=DEAD")
    dialog = start_replay(page, "fail")
    dialog.get_by_role("button", name="Continue in the background").click()
    page.goto(f"{fresh_service}/#/hostile/relays")
    tray = page.get_by_role("region", name="Jobs")
    tray.get_by_text("the first 20 were returned to PENDING").wait_for()
    for _ in range(2):  # each look is a step of the fake job
        urllib.request.urlopen(f"{fresh_service}/v1/boxes/hostile/jobs/job-1").close()
    tray.get_by_text("Stopped after 20 of 200 events").wait_for()
    page.locator("#messages").get_by_text("Replay: Stopped after 20 of 200 events.").wait_for()
    tray.get_by_role("button", name="Show").click()
    dialog.get_by_text("1 of 20 canary events is DEAD again").wait_for()
    dialog.get_by_role("button", name="Close").last.click()
    tray.wait_for(state="hidden")


def test_the_end_of_a_job_can_be_hidden_and_its_bar_is_at_the_bottom(open_page: Open, fresh_service: str):
    page = open_page(f"{fresh_service}/#/hostile/incident/55242f13?state=DEAD")
    dialog = start_replay(page)
    dialog.get_by_role("button", name="Continue in the background").click()
    page.goto(f"{fresh_service}/#/hostile/doctor")
    tray = page.get_by_role("region", name="Jobs")
    tray.wait_for()
    assert tray.evaluate("each => innerHeight - each.getBoundingClientRect().bottom") == 0
    for _ in range(4):
        urllib.request.urlopen(f"{fresh_service}/v1/boxes/hostile/jobs/job-1").close()
    tray.get_by_role("button", name="Hide: Replay Done").click()
    tray.wait_for(state="hidden")


# --- the list --------------------------------------------------------------------------------------------------------


def test_one_error_of_all_dead_events_is_a_link_to_its_incident(open_page: Open, service: str):
    page = open_page(f"{service}/#/breaker")
    page.get_by_role("link", name="31 dead events with the same error").click()
    page.get_by_role("button", name=re.compile("^Replay")).wait_for()
    assert page.url.endswith("/incident/55242f13?state=DEAD")


def test_several_errors_are_a_link_to_the_list(open_page: Open, service: str):
    page = open_page(f"{service}/#/million")
    page.get_by_role("link", name="1,048,576 dead events with at least 7 different errors").click()
    page.get_by_role("heading", name="Incidents").wait_for()


def test_the_list_opens_with_as_many_incidents_as_the_menu_counts(open_page: Open, service: str):
    page = open_page(f"{service}/#/breaker")
    page.get_by_role("navigation").get_by_role("link", name="Incidents 2").click()
    rows = page.get_by_role("table", name="Incidents").locator("tbody tr")
    rows.nth(1).wait_for()
    assert rows.count() == 2
    states, times = page.get_by_role("group", name="State"), page.get_by_role("group", name="Time")
    assert states.locator("[aria-current]").inner_text() == "All"
    assert times.locator("[aria-current]").inner_text() == "Any time"
    states.get_by_role("link", name="Pending").click()
    page.get_by_role("link", name="connect timeout").wait_for()
    rows.nth(1).wait_for(state="detached")
    assert page.url.endswith("?state=PENDING")


def test_a_retrying_incident_does_not_take_its_last_attempts_for_the_first(open_page: Open, service: str):
    page = open_page(f"{service}/#/breaker/incident/9c01aa7e?state=PENDING")
    facts = page.locator(".facts").first
    facts.wait_for()
    assert "Not known: a retry keeps the time of the last attempt only" in facts.inner_text()
    assert "Last attempt" in facts.inner_text()


def test_the_timeline_draws_failures_as_bars_that_compare(open_page: Open, service: str):
    page = open_page(f"{service}/#/million/incident/55242f13")
    page.get_by_role("img", name=re.compile("^Timeline: 12 entries")).wait_for()
    bars = page.locator(".timeline rect.failed")
    heights = [float(each.get_attribute("height")) for each in bars.all()]
    assert len(heights) == 9
    assert max(heights) == heights[2], "the moment with 60 failures"
    assert heights[4] == pytest.approx(heights[2] * 12 / 60, abs=0.1)
    page.locator(".legend").get_by_text("failures, at most 60 at a time").wait_for()
