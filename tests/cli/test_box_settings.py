"""`redbox pause`, `resume` and `configure`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from redbox import Event, Settings, keys
from redbox.box.operate import Operate
from redbox.cli.options import changes
from tests.cli.conftest import Redbox


def is_paused(redbox: Redbox) -> bool:
    return redbox.within(lambda box: box.stats()).paused


@pytest.mark.req("RO-3")
def test_pause_and_resume(redbox: Redbox):
    redbox.put(Event("a"))
    words = "no event of box 'default' is claimed until it is resumed"
    assert redbox("pause", "--dry-run").stdout == f"would pause: {words}\n"
    assert not is_paused(redbox)
    assert redbox("pause", "--yes", "--why", "deploy", "--who", "ada").stdout == f"paused: {words}\n"
    assert is_paused(redbox)
    assert "would resume" in redbox("resume", "--dry-run").stdout
    assert is_paused(redbox)
    assert redbox.json("resume", "--yes", "--who", "ada") == {
        "action": "resume", "dry_run": False, "key": None,
        "effect": "relays claim events of box 'default' again",
    }  # fmt: skip
    assert not is_paused(redbox)
    assert redbox("resume", "--dry-run").stdout == "nothing to resume: box 'default' is not paused\n"
    entries = redbox.within(lambda box: box.operate.log())
    assert [(entry.action, entry.who, entry.why) for entry in entries] == [
        ("resume", "ada", ""),
        ("pause", "ada", "deploy"),
    ]


@pytest.mark.req("RO-3", "LM-3")
def test_resume_finds_a_key_among_very_many_paused_ones(redbox: Redbox):
    redbox.put(Event("a", ordering_key="order-7"))
    scores = [part for number in range(1_000) for part in ("+inf", f"key-{number:04}")]
    redbox.within(lambda box: box._store.exchange([("ZADD", keys.paused(box.name), *scores)]))
    dry = ("resume", "--dry-run", "--key", "order-7")
    assert redbox(*dry).stdout == "nothing to resume: ordering key 'order-7' in box 'default' is not paused\n"
    redbox("pause", "--key", "order-7", "--yes")
    assert redbox(*dry).stdout.startswith("would resume: ")


def test_resume_says_that_a_key_is_not_paused(redbox: Redbox):
    redbox.put(Event("a"))
    words = "ordering key 'order-8' in box 'default' is not paused"
    redbox("pause", "--key", "order-7", "--yes")
    for option in ("--dry-run", "--yes"):
        assert redbox("resume", "--key", "order-8", option).stdout == f"nothing to resume: {words}\n"
    assert redbox.json("resume", "--key", "order-8", "--yes")["effect"] == words
    again = "relays claim events of ordering key 'order-7' in box 'default' again"
    assert redbox("resume", "--key", "order-7", "--dry-run").stdout == f"would resume: {again}\n"
    assert redbox("resume", "--key", "order-7", "--yes").stdout == f"resumed: {again}\n"


@pytest.mark.req("RO-3", "LM-3")
def test_resume_says_that_it_ends_a_ramp(redbox: Redbox, monkeypatch: pytest.MonkeyPatch):
    redbox.put(Event("a"))
    redbox("pause", "--yes")
    redbox("resume", "--ramp", "1h", "--yes")
    words = "the ramp is ended, and relays claim events of box 'default' at full rate"
    assert redbox("resume", "--dry-run").stdout == f"would resume: {words}\n"
    monkeypatch.setattr(changes, "can_ask", lambda: True)
    asked = redbox("resume", input="y\n")
    assert f"Then {words}." in asked.stderr
    assert asked.stdout.endswith(f"resumed: {words}\n")
    assert redbox.within(lambda box: box.stats()).ramp_ends is None
    assert redbox("resume", "--yes").stdout == "nothing to resume: box 'default' is not paused\n"
    assert redbox("resume").stdout == "nothing to resume: box 'default' is not paused\n"


@pytest.mark.req("RO-3", "LM-3")
def test_resume_of_a_box_with_paused_keys_alone_names_them(redbox: Redbox):
    """The box was never paused: no ramp begins, and the command that is needed is printed."""
    redbox.put(Event("a"))
    ramp = ("resume", "--ramp", "5m", "--yes")
    assert redbox(*ramp).stdout == "nothing to resume: box 'default' is not paused\n"
    redbox("pause", "--key", "order 7", "--yes")
    words = f"box 'default' is not paused, but 1 ordering key is:\n  redbox --url {redbox.url} resume '--key=order 7'"
    for command in (ramp, ("resume", "--yes"), ("resume", "--dry-run")):
        done = redbox(*command, code=1)
        assert done.stdout == f"nothing to resume: {words}\n"
        assert "paused" not in done.stderr
    for number in range(4):
        redbox("pause", "--key", f"k{number}", "--yes")
    many = redbox("resume", "--yes", code=1).stdout
    assert f"5 ordering keys are:\n  redbox --url {redbox.url} resume " in many
    assert many.count(" resume --key=") + many.count(" resume '--key=") == 3
    assert many.endswith("\n  ...\n")
    stats = redbox.within(lambda box: box.stats())
    assert (stats.ramp_ends, stats.paused_keys) == (None, 5)


@pytest.mark.req("RO-3", "LM-3")
def test_the_end_the_key_and_the_ramp_are_passed_on(redbox: Redbox, monkeypatch: pytest.MonkeyPatch):
    redbox.put(Event("a"))
    redbox("pause", "--yes")
    calls: list[dict[str, Any]] = []

    async def record(_: Operate, **options: Any) -> None:
        calls.append({name: value for name, value in options.items() if name not in ("who", "why")})

    monkeypatch.setattr(Operate, "pause", record)
    monkeypatch.setattr(Operate, "resume", record)
    before = redbox.within(lambda box: box.stats()).at
    assert redbox("pause", "--for", "10m", "--yes").stdout.endswith("is claimed for 10 min\n")
    assert redbox("pause", "--until", "2030-01-31T12:00:00Z", "--key", "k", "--yes").stdout == (
        "paused: no event of ordering key 'k' in box 'default' is claimed until 2030-01-31T12:00:00Z\n"
    )
    redbox("pause", "--until", "+1h", "--yes")
    assert redbox("resume", "--ramp", "5m", "--yes").stdout == (
        "resumed: relays claim events of box 'default' again, slowly at first, and at full rate after 5 min\n"
    )
    redbox("resume", "--key", "k", "--yes")
    relative = calls.pop(2)["until"] - before
    assert timedelta(hours=1) <= relative < timedelta(hours=1, minutes=1)
    assert calls == [
        {"duration": timedelta(minutes=10)},
        {"until": datetime(2030, 1, 31, 12, tzinfo=UTC), "key": "k"},
        {"ramp": timedelta(minutes=5)},
        {"key": "k"},
    ]


@pytest.mark.req("RO-3")
def test_pause_and_resume_ask_on_a_terminal(redbox: Redbox, monkeypatch: pytest.MonkeyPatch):
    redbox.put(Event("a"))
    monkeypatch.setattr(changes, "can_ask", lambda: True)
    declined = redbox("pause", input="n\n", code=1)
    assert "Pause box 'default'? Then no event of box 'default' is claimed until it is resumed." in declined.stderr
    assert not is_paused(redbox)
    redbox("pause", input="y\n")
    assert "Resume box 'default'? Then relays claim events of box 'default' again. 1 is available." in (
        redbox("resume", input="y\n").stderr
    )
    assert not is_paused(redbox)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("pause",), "add --yes or --dry-run"),
        (("resume",), "add --yes or --dry-run"),
        (("pause", "--for", "1m", "--until", "+1m", "--yes"), "either --for or --until"),
        (("resume", "--ramp", "1m", "--key", "k", "--yes"), "--ramp is for the whole box"),
        (("configure", "keep_dead=1d"), "add --yes or --dry-run"),
        (("configure", "keep_dead", "--yes"), "write NAME=VALUE"),
        (("configure", "keep_daed=1d", "--yes"), "there is no such setting; the settings are dead_head"),
        (("configure", "keep_dead=soon", "--yes"), "'soon' is not a duration"),
        (("configure", "max_pending=many", "--yes"), "max_pending: must be a whole number, not 'many'"),
        (("configure", "keep_dead_count=-1", "--yes"), "must be a whole number, or unlimited"),
        (("configure", "dead_head=jump", "--yes"), "must be 'skip' or 'block'"),
        (("configure", "max_rate=50", "--yes"), "max_rate: must be a number of events and a unit of time: 50/s,"),
        (("configure", "max_rate=0/s", "--yes"), "max_rate: must be more than 0, not '0/s'; to stop all claims, pause"),
        (("configure", "max_rate=2000000/s", "--yes"), "max_rate: must be between 1/d and 1000000/s"),
        (("configure", "max_in_flight=0", "--yes"), "not 0; to stop all claims, pause the box"),
        (("configure", "max_burst=x", "--yes"), "max_burst: must be a whole number, or unlimited"),
    ],
)
def test_wrong_usage(redbox: Redbox, arguments: tuple[str, ...], message: str):
    redbox.put(Event("a"))
    assert message in redbox.error(*arguments, code=2)


@pytest.mark.req("MQ-5")
def test_configure(redbox: Redbox):
    redbox.put(Event("a"))
    dry = redbox("configure", "keep_published=7d", "--dry-run")
    assert dry.stdout == "would change keep_published from 1d to 7d\n"
    assert redbox.within(lambda box: box.settings()) == Settings()
    done = redbox("configure", "keep_published=7d", "keep_dead_count=10", "dead_head=block", "--yes", "--why", "w")
    assert done.stdout == (
        "changed keep_published from 1d to 7d, keep_dead_count from unlimited to 10, dead_head from skip to block\n"
    )
    assert redbox.within(lambda box: box.settings()) == Settings(
        keep_published=7 * 86400.0, keep_dead_count=10, dead_head="block"
    )
    assert redbox.json("configure", "keep_published=default", "keep_dead=1h30m", "--yes") == {
        "action": "configure", "dry_run": False,
        "before": {"keep_published": 604800.0, "keep_dead": None},
        "after": {"keep_published": 86400.0, "keep_dead": 5400.0},
    }  # fmt: skip
    redbox("configure", "keep_published=forever", "keep_published_count=unlimited", "keep_dead=0", "--yes")
    settings = redbox.within(lambda box: box.settings())
    assert (settings.keep_published, settings.keep_published_count, settings.keep_dead) == (None, None, 0.0)
    assert [entry.action for entry in redbox.within(lambda box: box.operate.log())] == ["configure"] * 3


@pytest.mark.req("LM-1", "LM-2")
def test_configure_limits(redbox: Redbox):
    redbox.put(Event("a"))
    done = redbox("configure", "max_rate=1000/m", "max_in_flight=5", "--yes")
    assert done.stdout == "changed max_rate from unlimited to 1000/min, max_in_flight from unlimited to 5\n"
    assert redbox("configure", "max_burst=7", "--yes").stdout == "changed max_burst from default to 7\n"
    settings = redbox.within(lambda box: box.settings())
    assert (settings.max_rate, settings.max_burst, settings.max_in_flight) == ("1000/min", 7, 5)
    redbox("configure", "max_rate=unlimited", "max_burst=default", "max_in_flight=default", "--yes")
    assert redbox.within(lambda box: box.settings()) == Settings()
    meta = redbox.within(lambda box: box._store.meta())
    assert {"max_rate", "max_burst", "max_in_flight"}.isdisjoint(meta)


@pytest.mark.req("MQ-5")
def test_all_settings_are_shown_with_what_they_mean(redbox: Redbox):
    redbox.put(Event("a"))
    redbox("configure", "keep_dead=90d", "--yes")
    header, *rows = redbox("configure").stdout.splitlines()
    assert header.split() == ["SETTING", "VALUE", "DEFAULT", "MEANING"]
    assert [row.split()[0] for row in rows] == list(Settings.__struct_fields__)
    (row,) = [row for row in rows if row.startswith("keep_dead ")]
    assert row.split(maxsplit=4) == ["keep_dead", "90d", "no,", "forever", "how long DEAD events are kept"]
    shown = redbox.json("configure")
    assert shown["keep_dead"] == {
        "value": 7776000.0, "text": "90d", "default": "forever", "is_default": False,
        "meaning": "how long DEAD events are kept", "choices": [],
    }  # fmt: skip
    assert shown["dead_head"]["choices"] == ["skip", "block"]
    assert shown["max_pending"]["is_default"]


def test_a_new_box_is_configured_only_knowingly(redbox: Redbox, monkeypatch: pytest.MonkeyPatch):
    redbox.put(Event("a"), box="orders")
    assert "there is no box 'default'" in redbox.error("configure", code=1)
    assert "there is no box 'default'" in redbox.error("resume", "--yes", code=1)
    redbox("configure", "keep_dead=1d", "--dry-run")
    assert [box["box"] for box in redbox.lines("boxes")] == ["orders"]
    monkeypatch.setattr(changes, "can_ask", lambda: True)
    declined = redbox("pause", input="n\n", code=1)
    assert "There is no box 'default'" in declined.stderr
    assert "(existing boxes: orders). Create it?" in declined.stderr
    assert [box["box"] for box in redbox.lines("boxes")] == ["orders"]
    assert "it is created" in redbox("configure", "keep_dead=1d", "--yes").stderr
    assert [box["box"] for box in redbox.lines("boxes")] == ["default", "orders"]
