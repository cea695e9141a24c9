"""What people do on the dashboard: read, search, replay, pause; by keyboard, with a token, and with hostile data."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from tests.dashboard.fake_service import HOSTILE, TOKEN, event_id

pytestmark = [pytest.mark.req("SF-6"), pytest.mark.timeout(90)]

Open = Callable[..., Any]


def received(service: str) -> list[dict[str, Any]]:
    """The changes that the page has sent."""
    with urllib.request.urlopen(f"{service}/received") as answer:
        found: list[dict[str, Any]] = json.load(answer)
    return found


# --- hostile data ----------------------------------------------------------------------------------------------------


@pytest.mark.req("SF-5")
@pytest.mark.parametrize(
    "view", ["", "incidents", "incident/55242f13", "events", f"event/{event_id(3)}", "keys", "relays", "log"]
)
def test_hostile_text_stays_text(open_page: Open, service: str, view: str):
    page = open_page(f"{service}/#/hostile/{view}")
    page.locator("main").get_by_text("<script>document.title='owned'</script>").first.wait_for()
    assert page.title().endswith("redbox")
    assert page.locator("main script, main img, main iframe, main [onerror]").count() == 0
    assert page.evaluate("({}).polluted") is None
    shown = page.locator("main").inner_text()
    assert "\u202e" not in shown
    assert "\\u202e" in shown


@pytest.mark.req("SF-5")
def test_hostile_names_work_in_links(open_page: Open, service: str):
    page = open_page(f"{service}/#/hostile/events")
    page.get_by_role("cell").get_by_role("link", name="<img src=x").first.click()
    page.get_by_text("type:").wait_for()
    assert HOSTILE in page.evaluate("new URLSearchParams(location.hash.split('?')[1]).get('type')")


# --- keyboard --------------------------------------------------------------------------------------------------------


def test_from_failing_events_to_their_replay_by_keyboard_alone(open_page: Open, fresh_service: str):
    page = open_page(f"{fresh_service}/#/million")
    page.locator(".why").get_by_text("Events are flowing").wait_for()
    page.keyboard.press("g")
    page.keyboard.press("i")
    page.get_by_role("heading", name="Incidents", level=1).wait_for()  # the overview has one of level 2
    page.get_by_role("link", name="HTTP 422").wait_for()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Replay").wait_for()
    page.keyboard.press("r")
    page.get_by_text("1,048,300 events match").wait_for()
    assert page.evaluate("document.activeElement.type") == "number"  # the canary
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.type("amount is fixed")
    page.keyboard.press("Enter")
    page.get_by_role("dialog").get_by_text("Waiting for the canary").wait_for()
    page.get_by_role("dialog").get_by_text("1,048,300 events were replayed").wait_for()
    preview, job = (each["body"] for each in received(fresh_service))
    assert preview["dry_run"] is True
    assert job == {
        "action": "replay",
        "filter": {"state": "DEAD", "group": "55242f13"},
        "canary": 20,
        "rate": 50,
        "why": "amount is fixed",
    }
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="detached")
    page.keyboard.press("Escape")
    page.get_by_role("heading", name="Incidents").wait_for()


def test_keys_move_through_rows_and_back(open_page: Open, service: str):
    page = open_page(f"{service}/#/million/events?state=DEAD")
    page.locator("[data-row]").first.wait_for()
    for key in "jjk":
        page.keyboard.press(key)
    first = page.locator("[data-row]").first
    assert first.evaluate("element => element === document.activeElement")
    page.keyboard.press("Enter")
    page.get_by_text("It has been DEAD").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("heading", name="Events").wait_for()
    assert "state=DEAD" in page.url


def test_every_control_of_the_overview_is_reached_by_tab(open_page: Open, service: str):
    page = open_page(f"{service}/#/million")
    page.get_by_role("heading", name="Ordering keys").wait_for()
    controls = "header a, header button, header select, main a, main button, main summary"
    visible = f"[...document.querySelectorAll('{controls}')].filter((each) => each.checkVisibility())"
    wanted = page.evaluate(f"{visible}.length")
    seen = set()
    page.evaluate("document.activeElement.blur()")
    for _ in range(wanted + 20):
        page.keyboard.press("Tab")
        seen.add(page.evaluate(f"{visible}.indexOf(document.activeElement)"))
    assert set(range(wanted)) <= seen


def test_the_palette_finds_views_values_and_events(open_page: Open, service: str):
    page = open_page(f"{service}/#/million")
    page.locator(".why").get_by_text("Events are flowing").wait_for()
    page.keyboard.press("Control+k")
    page.keyboard.type("order.pl")
    page.get_by_role("option", name="Events of type order.placed").click()
    page.get_by_text("type:").wait_for()
    page.keyboard.press("/")
    page.keyboard.type(event_id(3))
    page.keyboard.press("Enter")
    page.get_by_text("It has been DEAD").wait_for()
    page.keyboard.press("/")
    page.keyboard.type("doctor")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Doctor").wait_for()


# --- token and scope -------------------------------------------------------------------------------------------------


@pytest.mark.req("SF-5")
def test_a_token_is_asked_for_and_kept_in_the_tab_only(open_page: Open, locked_service: str):
    page = open_page(f"{locked_service}/#/million/events")
    page.get_by_label("Token", exact=True).fill("wrong")
    page.keyboard.press("Enter")
    page.get_by_text("does not know this token").wait_for()
    page.get_by_label("Token", exact=True).fill(TOKEN)
    page.keyboard.press("Enter")
    page.locator("[data-row]").first.wait_for()
    page.get_by_text("live", exact=True).wait_for()  # the feed sends the token too
    assert page.evaluate("sessionStorage.length") == 1
    assert TOKEN not in page.evaluate("JSON.stringify(localStorage) + document.cookie + location.href")
    page.reload()
    page.locator("[data-row]").first.wait_for()
    page.get_by_role("button", name="Forget token").click()
    page.get_by_label("Token", exact=True).wait_for()


def test_a_page_that_may_only_read_offers_no_change(open_page: Open, read_only_service: str):
    for view in ("", "incident/55242f13", "events?state=DEAD", f"event/{event_id(3)}", "keys", "settings"):
        page = open_page(f"{read_only_service}/#/million/{view}")
        page.get_by_text("read-only").wait_for()
        page.locator("main h1").wait_for(state="attached")
        page.locator("main .loading").first.wait_for(state="detached")
        for name in ("Replay", "Drop", "Kill", "Pause", "Resume", "Save", "Export"):
            assert page.locator("main").get_by_role("button", name=re.compile(f"^{name}")).count() == 0, (view, name)
        page.keyboard.press("p")
        page.get_by_text("This page is read-only.").wait_for()


# --- events ----------------------------------------------------------------------------------------------------------


def test_filters_complete_and_become_chips_in_the_url(open_page: Open, service: str):
    page = open_page(f"{service}/#/million/events?state=DEAD")
    field = page.get_by_role("combobox", name="Add a filter")
    field.fill("ty")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.get_by_role("option", name="order.paid").wait_for()
    page.keyboard.type("order.pl")
    page.get_by_role("option", name="order.placed").click()
    page.get_by_role("button", name="Remove the filter type: order.placed").wait_for()
    assert page.url.endswith("events?state=DEAD&type=order.placed")
    page.go_back()
    page.get_by_role("button", name="Remove the filter").wait_for(state="detached")
    page.go_forward()
    page.get_by_role("button", name="Remove the filter").click()
    page.wait_for_url("**/events?state=DEAD")


def test_the_list_stays_while_someone_reads_and_says_what_is_new(open_page: Open, service: str):
    page = open_page(f"{service}/#/million/events")
    page.get_by_role("button", name=re.compile("new events: show them")).wait_for()
    assert page.locator("[data-row]").count() == 50
    page.get_by_role("button", name="Show more").click()
    page.locator("[data-row]").nth(99).wait_for()


def test_an_action_on_all_that_match_shows_the_count_first(open_page: Open, fresh_service: str):
    page = open_page(f"{fresh_service}/#/million/events?state=DEAD&type=order.placed")
    page.get_by_role("button", name="Drop").click()
    page.get_by_text("1,048,300 events match and would be removed for good").wait_for()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert [each["body"]["dry_run"] for each in received(fresh_service)] == [True]


def test_an_export_is_downloaded_with_the_token(open_page: Open, locked_service: str):
    page = open_page(f"{locked_service}/#/million/events?state=DEAD")
    page.get_by_label("Token", exact=True).fill(TOKEN)
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Export").click()
    page.get_by_role("dialog").get_by_role("button", name="Export").click()
    with page.expect_download() as found:
        page.get_by_role("button", name="Download").click()
    assert found.value.suggested_filename.startswith("million-job-")
    assert json.loads(found.value.path().read_text())["event_id"] == event_id(3)


def test_one_event_is_replayed_with_a_reason(open_page: Open, fresh_service: str):
    page = open_page(f"{fresh_service}/#/million/event/{event_id(3)}")
    page.get_by_role("button", name="Replay").click()
    page.get_by_label("Reason").fill("fixed")
    page.keyboard.press("Enter")
    page.locator(".view-head").get_by_text("Available").wait_for()
    assert received(fresh_service) == [
        {"path": f"/v1/boxes/million/events/{event_id(3)}/replay", "body": {"why": "fixed"}}
    ]


# --- the box ---------------------------------------------------------------------------------------------------------


def test_a_pause_that_is_refused_keeps_what_was_typed(open_page: Open, fresh_service: str):
    page = open_page(f"{fresh_service}/#/flowing")
    page.get_by_role("button", name="Pause").click()
    page.get_by_label("The pause ends when").select_option("1h")
    page.get_by_label("Reason").fill("fail")
    page.keyboard.press("Enter")
    page.get_by_text("the box cannot be paused now").wait_for()
    assert page.get_by_label("Reason").input_value() == "fail"
    page.get_by_label("Reason").fill("deploy")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Resume…").wait_for()  # the live feed reports it
    assert received(fresh_service)[-1]["body"] == {"why": "deploy", "duration": "1h"}


def test_settings_are_changed_with_a_reason_and_an_error_keeps_them(open_page: Open, fresh_service: str):
    page = open_page(f"{fresh_service}/#/million/settings")
    page.get_by_label("max_pending").fill("many")
    page.get_by_label("keep_published", exact=True).fill("1d")
    page.get_by_role("button", name="Save").click()
    page.get_by_text("from 7d to 1d (the default)").wait_for()
    page.get_by_role("button", name="Change").click()
    page.get_by_text("must be a whole number, not 'many'").wait_for()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert page.get_by_label("max_pending").input_value() == "many"
    page.get_by_label("max_pending").fill("5000")
    page.get_by_role("button", name="Save").click()
    page.get_by_label("Reason").fill("a small server")
    page.keyboard.press("Enter")
    page.get_by_text("Changed the settings.").wait_for()
    body = received(fresh_service)[-1]["body"]
    assert body == {"changes": {"max_pending": "5000"}, "reset": ["keep_published"], "why": "a small server"}


def test_numbers_update_in_place_and_the_focus_stays(open_page: Open, service: str):
    page = open_page(f"{service}/#/million")
    tile = page.get_by_role("link", name=re.compile("^Dead"))
    tile.focus()
    page.evaluate("window.tile = document.activeElement")
    with page.expect_event("console", lambda message: message.text == "updated"):
        page.evaluate(
            "new MutationObserver(() => console.log('updated')).observe(document.querySelector('.chart-head'),"
            " {subtree: true, characterData: true, childList: true})"
        )
    assert page.evaluate("window.tile === document.activeElement && window.tile.isConnected")


def test_a_number_keeps_its_digits(open_page: Open, service: str):
    page = open_page(f"{service}/#/million")
    text = page.evaluate(
        """async () => {
          const { call } = await import('/static/api.js');
          const { jsonText } = await import('/static/payload.js');
          const real = window.fetch;
          window.fetch = async () => new Response('{"a": 12345678901234567890, "b": 12.50, "c": 1}');
          try { return jsonText(await call('GET', 'v1/x', { exact: true })); } finally { window.fetch = real; }
        }"""
    )
    assert text == '{\n  "a": 12345678901234567890,\n  "b": 12.50,\n  "c": 1\n}'
