"""What the page does when a tab is hidden, an answer does not come, or the service changes under it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from tests.dashboard.fake_service import TOKEN

pytestmark = [pytest.mark.req("SF-6"), pytest.mark.timeout(90)]

Open = Callable[..., Any]
#: A tab that a test can hide and show: `hideTab(true)`.
HIDEABLE: Final = """
let hidden = START;
Object.defineProperty(Document.prototype, 'hidden', { get: () => hidden });
window.hideTab = (value) => { hidden = value; document.dispatchEvent(new Event('visibilitychange')); };
"""


def hideable(open_page: Open, url: str, *, hidden: bool = False) -> tuple[Any, list[str]]:
    """A page whose tab can be hidden, and the paths that it asks for."""
    page = open_page("about:blank")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.partition("/v1")[2]))
    page.add_init_script(HIDEABLE.replace("START", json.dumps(hidden)))
    page.goto(url)
    return page, asked


def test_a_page_opened_in_a_hidden_tab_starts_its_feed_when_it_is_seen(open_page: Open, service: str):
    page, asked = hideable(open_page, f"{service}/#/million", hidden=True)
    page.get_by_text("resting").wait_for()
    assert not [path for path in asked if path.startswith("/live")]
    page.evaluate("hideTab(false)")
    page.get_by_text("live", exact=True).wait_for()


def test_a_feed_without_an_answer_counts_as_lost(open_page: Open, service: str):
    page = open_page("about:blank")
    page.clock.install()
    page.route("**/v1/live?*", lambda route: None)  # never answered
    page.goto(f"{service}/#/million")
    page.get_by_text("connecting").wait_for()
    page.clock.fast_forward(31_000)
    page.get_by_text("not connected").wait_for()


def test_charts_fill_the_time_in_which_the_tab_was_hidden(open_page: Open, service: str):
    page, asked = hideable(open_page, f"{service}/#/million")
    now = datetime.now(UTC)
    sample = {"put": 1.0, "published": 1.0, "failed": 0.0, "dead": 0, "p50_ms": 1, "p99_ms": 2}

    def at(seconds: float) -> dict[str, Any]:
        return {**sample, "at": (now - timedelta(seconds=seconds)).isoformat()}

    page.get_by_text("live", exact=True).wait_for()
    page.get_by_role("img", name=re.compile("^Put: now")).wait_for()
    read = [path for path in asked if "rates" in path]
    page.evaluate(
        "async (last) => { const { change, state } = await import('/static/store.js');"
        " change({ live: { ...state.live, rates_last: last } }); }",
        at(-600),
    )
    page.wait_for_function(
        "() => performance.getEntriesByType('resource').filter((e) => /rates/.test(e.name)).length > 1"
    )
    assert len([path for path in asked if "rates" in path]) > len(read)


def test_a_sample_that_is_not_complete_is_replaced(open_page: Open, service: str):
    page = open_page(f"{service}/#/million")
    drawn = page.evaluate(
        """async () => {
          const { joined } = await import('/static/views/overview.js');
          const at = (second, put) => ({ at: `2026-01-31T12:00:${second}Z`, put });
          const before = [at('00', 1), at('10', 2)];
          const later = [at('10', 3), at('20', 4), at('00', 9), at('50', 9)];
          return later.map((each) => joined(before, each, 10));
        }"""
    )
    replaced, added, older, gap = drawn
    assert [each["put"] for each in replaced] == [1, 3]
    assert [each["put"] for each in added] == [1, 2, 4]
    assert [each["put"] for each in older] == [1, 2]
    assert gap is None


def test_a_chart_draws_samples_at_their_times(open_page: Open, service: str):
    page = open_page(f"{service}/#/million")
    paths = page.evaluate(
        """async () => {
          const { Chart } = await import('/static/chart.js');
          const chart = new Chart('Put', [{ name: 'put', kind: 'accent' }], String, 1);
          const at = (minute, put) => ({ at: `2026-01-31T12:${minute}:00Z`, put });
          chart.draw([at('00', 1), at('01', 1), at('10', 1)], 60);
          document.body.append(chart.element);
          chart.plot.focus();
          chart.plot.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowLeft', bubbles: true }));
          const lines = [...chart.element.querySelectorAll('path.line')].map((path) => path.getAttribute('d'));
          return [lines, chart.plot.ariaLabel];
        }"""
    )
    lines, label = paths
    assert len(lines) == 2, "a gap is not drawn over"
    assert lines[0].startswith("M0 ")
    assert "L30 " in lines[0], "a tenth of the time is a tenth of the width"
    assert "now" not in label, "the label names the moment that is selected"


def test_new_boxes_appear_and_a_new_token_has_its_own_scopes(open_page: Open, locked_service: str):
    page = open_page("about:blank")
    page.clock.install()
    answer: dict[str, Any] = {"default_box": "million", "boxes": ["million"], "scopes": ["read"], "read_only": True}
    page.route("**/v1", lambda route: route.fulfill(json=answer))
    page.goto(f"{locked_service}/#/million/events?state=DEAD")
    page.get_by_label("Token", exact=True).fill("wrong")
    answer |= {"scopes": ["read", "operate"], "read_only": False}
    page.keyboard.press("Enter")
    page.get_by_text("does not know this token").wait_for()
    page.get_by_label("Token", exact=True).fill(TOKEN)
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Drop…").wait_for()
    answer["boxes"] = ["million", "invoices"]
    page.clock.fast_forward(61_000)
    page.locator("select.boxes option", has_text="invoices").wait_for(state="attached")


def test_the_skip_link_leaves_the_address_alone(open_page: Open, service: str):
    page = open_page(f"{service}/#/million/events")
    page.locator("[data-row]").first.wait_for()
    page.get_by_role("link", name="Skip to the content").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    assert page.url.endswith("#/million/events")
