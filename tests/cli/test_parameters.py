"""Durations, times and NAME=VALUE pairs as parameters of commands."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click
import pytest

from redbox.cli.options.parameters import ABSOLUTE_MOMENT, DURATION, MOMENT


def test_times_are_absolute_or_relative():
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert MOMENT.convert("2026-01-31T12:00:00Z", None, None) == noon
    assert MOMENT.convert("2026-01-31T13:00:00+01:00", None, None) == noon
    assert ABSOLUTE_MOMENT.convert("2026-01-31 12:00Z", None, None) == noon
    assert MOMENT.convert("1h", None, None) == timedelta(hours=-1)
    assert MOMENT.convert("-1h", None, None) == timedelta(hours=-1)
    assert MOMENT.convert("+1h", None, None) == timedelta(hours=1)
    assert DURATION.convert(timedelta(1), None, None) == timedelta(1)


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (MOMENT, "2026-01-31", "has no time zone; add one: 2026-01-31T00:00:00Z"),
        (MOMENT, "yesterday", "is not a time; give ISO 8601 with a zone: .*, or a relative time: 1h"),
        (ABSOLUTE_MOMENT, "1h", "is not a time; give ISO 8601 with a zone: 2026-01-31T12:00:00Z$"),
        (DURATION, "soon", "is not a duration"),
    ],
)
def test_an_invalid_value_is_refused_with_the_accepted_forms(kind: click.ParamType, text: str, message: str):
    with pytest.raises(click.BadParameter, match=message):
        kind.convert(text, None, None)
