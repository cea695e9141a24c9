"""Every view in every state: it shows what it should, fits the screen, can be read, and names its controls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.dashboard.fake_service import event_id

pytestmark = [pytest.mark.req("SF-6"), pytest.mark.timeout(90)]

#: Box and view → a text that the view must show.
VIEWS: Final = {
    "flowing": "Events are flowing",
    "million": "1,048,576",
    "paused": "The box was paused 9 min ago by ada",
    "breaker": "The breakers of all 2 relays are open",
    "empty": "No events yet.",
    "down": "The store does not answer",
    "hostile": "<script>document.title='owned'</script>",
    "nowhere": "there is no box 'nowhere'",
    "million/incidents": "HTTP 422 amount must be a number, not <text>",
    "empty/incidents": "No incidents.",
    "down/incidents": "No answer from redis://10.0.0.7:6379/0",
    "million/incident/55242f13": "amount is text; in the delivered event it is a number.",
    "breaker/incident/9c01aa7e?state=PENDING": "No delivered event of this type is stored.",
    "hostile/incident/55242f13": "<script>",
    "million/incident/nothing": "No event that failed lately has this error any more",
    "breaker/incident/nothing": "No event has this error any more",
    "million/events": "order.placed",
    "million/events?state=DEAD&type=order.placed": "Dead since",
    "million/events?type=nothing": "No events match.",
    "empty/events": "No events yet.",
    "down/events": "The store does not answer",
    f"million/event/{event_id(3)}": "It has been DEAD for 13 min",
    f"hostile/event/{event_id(3)}": "polluted",
    "million/event/nothing": "Not found",
    "million/event/removed": "It was dropped 2 h ago by ada.",
    "million/keys": "40 events",
    "million/keys/order-7": "40 events of ordering key order-7",
    "empty/keys": "No ordering key is blocked by a dead event.",
    "breaker/relays": "silent for 1 h",
    "empty/relays": "No relay has sent a heartbeat",
    "million/log": "the provider is down",
    "empty/log": "Nothing was changed by hand yet.",
    "million/log?action=drop": "a test event",
    "million/settings": "keep_published",
    "paused/settings": "Paused",
    "million/doctor": "and no relay is running",
    "flowing/doctor": "break no rule",
    "million/unknown": "There is no view unknown.",
}

CONTRAST: Final = """() => {
  const parse = (text) => {
    const [red, green, blue, alpha = 1] = text.match(/[\\d.]+/g).map(Number);
    return { red, green, blue, alpha };
  };
  const over = (top, below) => ({
    red: top.red * top.alpha + below.red * (1 - top.alpha),
    green: top.green * top.alpha + below.green * (1 - top.alpha),
    blue: top.blue * top.alpha + below.blue * (1 - top.alpha), alpha: 1 });
  const luminance = (colour) => {
    const linear = (part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = [colour.red, colour.green, colour.blue].map((part) => linear(part / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    if (!element) return { red: 255, green: 255, blue: 255, alpha: 1 };
    const own = parse(getComputedStyle(element).backgroundColor);
    return own.alpha === 1 ? own : over(own, ground(element.parentElement));
  };
  const poor = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let looked = 0;
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    const seen = element.checkVisibility({ opacityProperty: true, visibilityProperty: true });
    if (!node.data.trim() || !seen || element.closest('noscript, :disabled')) continue;
    looked += 1;
    const style = getComputedStyle(element);
    const below = ground(element);
    const ink = over(parse(element instanceof SVGElement ? style.fill : style.color), below);
    const [light, dark] = [luminance(ink), luminance(below)].sort((a, b) => b - a);
    const ratio = (light + 0.05) / (dark + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) poor.push(`${ratio.toFixed(2)} ${element.className} ${node.data.slice(0, 40)}`);
  }
  return looked < 10 ? ['almost no text was found'] : poor;
}"""
TOO_WIDE: Final = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
CONTROLS: Final = (
    "button", "link", "textbox", "searchbox", "combobox", "spinbutton", "checkbox", "image", "img", "progressbar",
    "table", "dialog", "region",
)  # fmt: skip


def nameless(page: Any) -> list[str]:
    """Controls without a name in the accessibility tree of the browser."""
    session = page.context.new_cdp_session(page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    found = []
    for node in nodes:
        role = node.get("role", {}).get("value")
        decorative = role == "image" and node.get("ignored")
        if role in CONTROLS and not node.get("ignored") and not decorative and not node.get("name", {}).get("value"):
            found.append(f"{role} {node.get('nodeId')}")
    assert len(nodes) > 10
    return found


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), pytest.param(320, "dark", marks=pytest.mark.campaign)])
def test_a_view_shows_its_state_and_can_be_read(
    open_page: Callable[..., Any], service: str, view: str, width: int, scheme: str
):
    page = open_page(f"{service}/#/{view}", width=width, scheme=scheme)
    page.locator("main").get_by_text(VIEWS[view]).first.wait_for()
    assert page.evaluate(TOO_WIDE) <= 0
    assert page.evaluate(CONTRAST) == []
    assert nameless(page) == []
    assert page.locator("main h1").count() <= 1
    assert page.title() != "owned"


@pytest.mark.parametrize(("width", "scheme"), [(320, "light"), (1280, "dark")])
def test_the_other_schemes_can_be_read_too(open_page: Callable[..., Any], service: str, width: int, scheme: str):
    for view in ("breaker", "million/incident/55242f13", "million/events?state=DEAD"):
        page = open_page(f"{service}/#/{view}", width=width, scheme=scheme)
        page.locator("main h1, main .why").first.wait_for()
        assert page.evaluate(CONTRAST) == []
        assert page.evaluate(TOO_WIDE) <= 0


def test_the_header_fits_a_narrow_screen_with_all_that_it_can_hold(
    open_page: Callable[..., Any], read_only_service: str
):
    page = open_page(f"{read_only_service}/#/million/events?state=DEAD", width=320)
    page.evaluate("sessionStorage.setItem('redbox-token', 'x')")
    page.get_by_role("button", name="Forget token").wait_for()  # the next update of the header shows it
    page.get_by_text("read-only").wait_for()
    page.locator("[data-row]").first.wait_for()
    assert page.evaluate(TOO_WIDE) <= 0


def test_dialogs_can_be_read_and_name_their_controls(open_page: Callable[..., Any], fresh_service: str):
    for scheme in ("light", "dark"):
        page = open_page(f"{fresh_service}/#/million/incident/55242f13", width=320, scheme=scheme)
        page.get_by_role("button", name="Replay").wait_for()
        for key in ("r", "p", "/", "?"):
            page.keyboard.press(key)
            page.locator("dialog[open]").wait_for()
            if key == "r":
                page.get_by_label("Canary").wait_for()
            assert page.evaluate(CONTRAST) == []
            assert page.evaluate(TOO_WIDE) <= 0
            assert nameless(page) == []
            page.keyboard.press("Escape")
            page.locator("dialog[open]").wait_for(state="detached")


def test_the_scheme_follows_the_system_and_can_be_chosen(open_page: Callable[..., Any], service: str):
    page = open_page(f"{service}/#/flowing", scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(ground)
    page.get_by_role("button", name="Colours").click()
    light = page.evaluate(ground)
    page.get_by_role("button", name="Colours: light").click()
    assert page.evaluate(ground) == dark
    assert sum(int(part) for part in dark[4:-1].split(",")) < 150 < sum(int(part) for part in light[4:-1].split(","))
