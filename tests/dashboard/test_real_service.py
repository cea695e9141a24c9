"""SF-6: the dashboard on a real service: events arrive, fail, and are mended, in a browser that never reloads."""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.real_service import Target, Up

pytestmark = [pytest.mark.req("SF-6"), pytest.mark.timeout(90)]

Open = Callable[..., Any]
HOSTILE = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    made = Target()
    yield made
    made.close()


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, target: Target) -> Iterator[Up]:
    with Up(tmp_path_factory.mktemp("up"), target) as running:
        yield running


def refused(up: Up, event_type: str, text: str, count: int) -> None:
    """Puts events that the target refuses, and others between them: the target is up, so the breaker stays closed."""
    up.target.refusals[event_type] = text
    for number in range(count):
        up.put(event_type, {"order": number, "amount": "12,50"})
        up.put("order.placed", {"order": number, "amount": 12.5})


def test_an_event_appears_without_a_reload(open_page: Open, up: Up):
    page = open_page(f"{up.url}/")
    page.get_by_text("No events yet.").wait_for()
    page.evaluate("window.same = true")
    up.put("order.placed", {"order": 1})
    page.get_by_role("link", name=re.compile(r"Published\s*1\b")).wait_for()
    page.get_by_text("1 event was published so far").wait_for()
    page.get_by_role("link", name="Events", exact=True).click()
    page.get_by_role("cell", name="order.placed").wait_for()
    for number in range(3):
        up.put("order.paid", {"order": number})
    page.get_by_role("button", name="3 new events: show them").click()
    page.get_by_role("cell", name="order.paid").nth(2).wait_for()
    assert page.evaluate("window.same")


def test_from_an_incident_to_its_replay(open_page: Open, up: Up):
    page = open_page(f"{up.url}/")
    refused(up, "order.refunded", "amount must be a number", 12)
    incident = page.get_by_role("row").filter(has_text="order.refunded")
    incident.get_by_text("12 dead").wait_for()
    assert "HTTP 422" in incident.inner_text()
    assert incident.locator("svg.spark").count() == 1
    incident.get_by_role("link", name="amount must be a number").click()
    page.get_by_text('"12,50"').first.wait_for()
    page.get_by_role("button", name="Replay 12…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("12 events match").wait_for()
    dialog.get_by_label("Canary").fill("3")
    dialog.get_by_label("Reason").fill("not mended yet")
    dialog.get_by_role("button", name="Replay 3 first").click()
    dialog.get_by_text("Stopped").wait_for()  # the canary is DEAD again
    dialog.get_by_role("button", name="Close").last.click()
    assert up.request("GET", "boxes/orders/stats")["phases"]["DEAD"] == 12
    del up.target.refusals["order.refunded"]
    page.get_by_role("button", name="Replay 12…").click()
    dialog.get_by_label("Canary").fill("3")
    dialog.get_by_label("Reason").fill("the target is mended")
    dialog.get_by_role("button", name="Replay 3 first").click()
    dialog.get_by_text("Done").wait_for()
    dialog.get_by_role("button", name="Close").last.click()
    page.goto(f"{up.url}/#/orders/events?state=PUBLISHED&type=order.refunded")
    page.locator("[data-row]").nth(11).wait_for()
    page.goto(f"{up.url}/#/orders/log")
    entry = page.get_by_role("row").filter(has_text="the target is mended").first
    assert f"dashboard@{socket.gethostname()}" in entry.inner_text()


def test_a_replay_by_keyboard_alone(open_page: Open, up: Up):
    refused(up, "order.shipped", "no such warehouse", 2)
    page = open_page(f"{up.url}/")
    page.get_by_role("row").filter(has_text="order.shipped").get_by_text("2 dead").wait_for()
    del up.target.refusals["order.shipped"]
    page.keyboard.press("g")
    page.keyboard.press("i")
    page.get_by_role("heading", name="Incidents", level=1).wait_for()  # the overview has one of level 2
    page.get_by_role("link", name="no such warehouse").wait_for()
    for _ in range(10):
        page.keyboard.press("j")
        if "no such warehouse" in page.evaluate("document.activeElement.textContent"):
            break
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Replay 2…").wait_for()
    page.keyboard.press("r")
    page.get_by_text("2 events match").wait_for()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.type("warehouse 7 is back")
    page.keyboard.press("Enter")
    page.get_by_role("dialog").get_by_text("Done").wait_for()
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="detached")
    found = up.request("GET", "boxes/orders/events?state=PUBLISHED&type=order.shipped")["events"]
    assert len(found) == 2


def test_pause_and_resume_are_logged_with_who_and_why(open_page: Open, up: Up):
    page = open_page(f"{up.url}/")
    page.get_by_role("button", name="Pause…").click()
    page.get_by_label("Reason").fill("deploy of billing")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Resume…").wait_for()
    page.locator(".why").get_by_text("deploy of billing").wait_for()
    held = up.put("order.held")
    page.goto(f"{up.url}/#/orders/event/{held}")
    page.locator(".why").get_by_text("paused").first.wait_for()
    page.goto(f"{up.url}/#/orders")
    page.get_by_role("button", name="Resume…").click()
    page.get_by_label("Reason").fill("billing is deployed")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Pause…").wait_for()
    page.get_by_role("link", name="Log").click()
    for action, why in (("pause", "deploy of billing"), ("resume", "billing is deployed")):
        entry = page.get_by_role("row").filter(has=page.get_by_text(action, exact=True)).filter(has_text=why)
        assert f"dashboard@{socket.gethostname()}" in entry.inner_text()


def test_events_are_found_by_id_type_and_text(open_page: Open, up: Up):
    wanted = up.put("invoice.sent", {"customer": "Ada Lovelace", "lines": [1, 2]}, ordering_key="invoice-7")
    up.put("invoice.sent", {"customer": "Grace Hopper"})
    page = open_page(f"{up.url}/#/orders/events")
    page.get_by_role("combobox", name="Add a filter").fill("Lovelace")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Remove the filter text: Lovelace").wait_for()
    page.locator("[data-row]").first.wait_for()
    assert page.locator("[data-row]").count() == 1
    page.goto(f"{up.url}/#/orders")
    page.keyboard.press("/")
    page.keyboard.type("invoice.s")
    page.get_by_role("option", name="Events of type invoice.sent").click()
    page.locator("[data-row]").nth(1).wait_for()
    page.keyboard.press("/")
    page.keyboard.type(wanted)
    page.keyboard.press("Enter")
    page.get_by_text("Ada Lovelace").first.wait_for()
    page.get_by_role("link", name="invoice-7").wait_for()


def test_one_event_with_its_attempts_and_why(open_page: Open, up: Up):
    up.target.refusals["payment.failed"] = "card 17 has expired"
    one = up.put("payment.failed", {"card": 17})
    page = open_page(f"{up.url}/#/orders/events?state=DEAD&type=payment.failed")
    page.locator("[data-row]").first.click()
    page.get_by_text(one).first.wait_for()
    page.locator(".why").get_by_text("DEAD").first.wait_for()
    attempts = page.get_by_role("table", name="Attempts")
    assert "card 17 has expired" in attempts.inner_text()
    assert "DEAD" in attempts.inner_text()
    assert re.search(r"\d (ms|s)\b", attempts.inner_text())


@pytest.mark.req("SF-5")
def test_hostile_text_of_a_payload_and_of_a_target_stays_text(open_page: Open, up: Up):
    up.target.refusals["hostile.put"] = HOSTILE
    one = up.put("hostile.put", {"text": HOSTILE, HOSTILE: 1}, headers={"x": HOSTILE}, ordering_key=HOSTILE)
    page = open_page(f"{up.url}/#/orders")
    for view in ("", "incidents", "events?state=DEAD", f"event/{one}", f"events?text={'%3Cscript%3E'}"):
        page.goto(f"{up.url}/#/orders/{view}")
        page.locator("main").get_by_text("<script>document.title='owned'").first.wait_for()
        assert page.locator("main script, main img, main [onerror]").count() == 0
        assert page.title().endswith("redbox")


def test_charts_have_samples_after_some_seconds(open_page: Open, up: Up):
    up.put("order.placed")  # a box without events has no charts
    page = open_page(f"{up.url}/")
    page.get_by_role("img", name=re.compile(r"Published: now .*since \d\d:\d\d")).wait_for(timeout=20_000)
    assert page.locator(".chart path.line").count() >= 3
    up.target.refusals["order.refused"] = "no such customer"
    up.put("order.refused")
    flowing = page.locator(".why").get_by_text("Events are flowing")
    attention = page.get_by_role("img", name="Attention", exact=True)  # an event died lately; it is named beside it
    deadline = time.monotonic() + 30
    # Until more are published than died, whatever other tests did to the box.
    while not (flowing.is_visible() and attention.is_visible()):
        assert time.monotonic() < deadline
        for _ in range(5):
            up.put("order.placed")
        page.wait_for_timeout(200)
    page.get_by_role("link", name=re.compile(r"\d+ dead events?\b")).wait_for()


def test_a_store_that_stops_is_reported_until_it_is_back(open_page: Open, up: Up):
    page = open_page(f"{up.url}/")
    page.get_by_text("live", exact=True).wait_for()
    os.kill(up.store_pid, signal.SIGSTOP)
    page.get_by_text("The store does not answer").wait_for(timeout=30_000)
    page.get_by_text("This page tries again by itself.").wait_for()
    os.kill(up.store_pid, signal.SIGKILL)  # the service starts another one
    page.get_by_text("The store does not answer").wait_for(state="detached", timeout=30_000)
    page.get_by_text("live", exact=True).wait_for()
    up.put("order.last")
    page.get_by_role("link", name=re.compile(r"Published\s*\d")).wait_for()


@pytest.mark.req("SF-5")
def test_a_token_decides_what_the_page_offers(open_page: Open, own_services: ExitStack, target: Target, tmp_path: Path):
    tokens = tmp_path / "tokens"
    tokens.write_text("ada operate operator-of-the-shop-1\ngrace read reader-of-the-shop-1\n")
    tokens.chmod(0o600)
    up = own_services.enter_context(Up(tmp_path, target, "--token-file", str(tokens)))
    page = open_page(f"{up.url}/")
    page.get_by_label("Token", exact=True).fill("not-a-token-of-this-service")
    page.keyboard.press("Enter")
    page.get_by_text("does not know this token").wait_for()
    page.get_by_label("Token", exact=True).fill("reader-of-the-shop-1")
    page.keyboard.press("Enter")
    page.get_by_text("live", exact=True).wait_for()
    page.get_by_text("read-only").wait_for()
    assert page.get_by_role("button", name="Pause…").count() == 0
    page.get_by_role("button", name="Forget token").click()
    page.get_by_label("Token", exact=True).fill("operator-of-the-shop-1")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Pause…").click()
    page.get_by_label("Reason").fill("maintenance")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Resume…").wait_for()
    page.get_by_role("link", name="Log").click()
    assert "ada" in page.get_by_role("row").filter(has_text="maintenance").inner_text()


def test_a_key_whose_head_is_retried_is_listed(open_page: Open, own_services: ExitStack, tmp_path: Path):
    away = Target()
    away.close()  # nothing listens, so every attempt is retried
    up = own_services.enter_context(Up(tmp_path, away, "--retry", "fixed:5m", "--no-breaker"))
    head, *_ = [up.put("order.placed", {"order": number}, ordering_key="order-7") for number in range(3)]
    page = open_page(f"{up.url}/#/orders/keys")
    row = page.get_by_role("table", name="Keys that wait").get_by_role("row").filter(has_text="order-7")
    row.get_by_role("link", name="2 events").wait_for(timeout=25_000)  # read every 10 s
    row.locator(f"a[title='{head}']").wait_for()
