"""Rates as people write them: LM-1."""

from __future__ import annotations

import pytest

from redbox.rates import double, parse_rate, per_second

pytestmark = pytest.mark.req("LM-1")


@pytest.mark.parametrize(
    ("text", "stored", "rate"),
    [
        ("50/s", "50/s", 50.0), ("1000/min", "1000/min", 1000 / 60), ("1000 / m", "1000/min", 1000 / 60),
        ("20 per hour", "20/h", 20 / 3600), ("0.10/s", "0.1/s", 0.1), ("00.5/sec", "0.5/s", 0.5), ("5.0/S", "5/s", 5.0),
        ("1/d", "1/d", 1 / 86400), ("1/day", "1/d", 1 / 86400), ("1000000/s", "1000000/s", 1e6),
        ("60000000/min", "60000000/min", 1e6),
    ],
)  # fmt: skip
def test_accepted(text: str, stored: str, rate: float):
    assert parse_rate(text) == stored
    assert parse_rate(stored) == stored
    assert per_second(stored) == pytest.approx(rate)


@pytest.mark.parametrize(
    "text", ["50", "50/x", "50/", "/s", "-1/s", "+1/s", "1e3/s", ".5/s", "5./s", "nan/s", "inf/s", "", "1,5/s", "٣/s"]
)
def test_not_a_rate(text: str):
    with pytest.raises(ValueError, match=r"must be a number of events and a unit of time: 50/s, 1000/min"):
        parse_rate(text)


@pytest.mark.parametrize("text", ["0/s", "0.000/h"])
def test_no_events_at_all(text: str):
    with pytest.raises(ValueError, match="must be more than 0; to stop all claims, pause the box"):
        parse_rate(text)


@pytest.mark.parametrize("text", ["1000001/s", "0.99/d", "60000001/min"])
def test_out_of_bounds(text: str):
    with pytest.raises(ValueError, match="must be between 1/d and 1000000/s"):
        parse_rate(text)


def test_twice_a_rate_is_a_rate():
    assert [double(rate) for rate in ("50/s", "0.1/s", "20/h")] == ["100/s", "0.2/s", "40/h"]
    assert parse_rate(double("600000/s")) == "1000000/s"
