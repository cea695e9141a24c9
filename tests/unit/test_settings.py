"""Settings: checked when given, and unchanged after a round trip through the meta hash."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from redbox import Settings
from redbox.errors import InvalidSetting, RedboxError
from redbox.keys import check_box_name
from redbox.settings import to_meta


@pytest.mark.req("MQ-5")
def test_defaults():
    settings = Settings()
    assert (settings.dead_head, settings.max_pending) == ("skip", 0)
    assert (settings.keep_published, settings.keep_published_count) == (86_400.0, 100_000)
    assert (settings.keep_dead, settings.keep_dead_count) == (None, None)


def test_an_empty_hash_is_the_defaults():
    assert Settings.from_meta({}) == Settings()


def test_other_fields_of_the_hash_are_ignored():
    assert Settings.from_meta({"layout": "1", "paused": "1", "max_pending": "5"}) == Settings(max_pending=5)


@pytest.mark.parametrize(
    ("changes", "written"),
    [
        ({"dead_head": "block"}, {"dead_head": "block"}),
        ({"max_pending": 10}, {"max_pending": "10"}),
        ({"keep_published": 0}, {"keep_published": "0"}),
        ({"keep_published": 90.5}, {"keep_published": "90.5"}),
        ({"keep_published": timedelta(hours=2)}, {"keep_published": "7200"}),
        ({"keep_published": None}, {"keep_published": "forever"}),
        ({"keep_dead": 60, "keep_dead_count": 5}, {"keep_dead": "60", "keep_dead_count": "5"}),
        ({}, {}),
    ],
)
def test_how_settings_are_written(changes: dict[str, Any], written: dict[str, str]):
    assert to_meta(changes) == written


@pytest.mark.parametrize("seconds", [0.0, 0.001, 90.5, 86_400.0, 1_234_567.0, 31_536_000.0, 31_622_400.0])
def test_a_retention_is_read_as_it_was_written(seconds: float):
    assert Settings.from_meta(to_meta({"keep_dead": seconds})).keep_dead == seconds


def test_no_limit_is_read_as_it_was_written():
    assert Settings.from_meta({"keep_published": "forever", "keep_published_count": "forever"}) == Settings(
        keep_published=None, keep_published_count=None
    )


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"dead_heads": "skip"}, "dead_heads"),
        ({"dead_head": "stop"}, "dead_head"),
        ({"max_pending": "many"}, "max_pending"),
        ({"max_pending": -1}, "max_pending"),
        ({"max_pending": 1.5}, "max_pending"),
        ({"keep_published": -1.0}, "keep_published"),
        ({"keep_dead": timedelta(seconds=-1)}, "keep_dead"),
        ({"keep_dead_count": -1}, "keep_dead_count"),
        ({"keep_dead": float("nan")}, "keep_dead"),
        ({"keep_dead": float("inf")}, "keep_dead"),
    ],
)
def test_an_invalid_setting_is_refused_and_named(changes: dict[str, Any], name: str):
    with pytest.raises(InvalidSetting, match=name):
        to_meta(changes)


def test_a_change_given_is_not_changed():
    changes = {"keep_dead": timedelta(seconds=5)}
    to_meta(changes)
    assert changes == {"keep_dead": timedelta(seconds=5)}


@pytest.mark.parametrize("name", ["default", "orders", "a", "Orders_2.eu-west", "_", "x" * 64])
def test_valid_box_names(name: str):
    assert check_box_name(name) == name


@pytest.mark.parametrize("name", ["", ".", "-x", "a b", "a:b", "{a}", "a*", "x" * 65, "ü", None, 5, "a\n"])
def test_invalid_box_names_are_refused(name: Any):
    with pytest.raises(InvalidSetting, match="box name"):
        check_box_name(name)


def test_an_invalid_setting_is_one_of_ours():
    assert issubclass(InvalidSetting, RedboxError)
    assert issubclass(InvalidSetting, ValueError)
