"""The rate of a box's claims as people write it: `50/s`, `1000/min`."""

from __future__ import annotations

import re
from typing import Final

#: As in lua/include/read_rate.lua, in seconds.
UNITS: Final = {"s": 1, "min": 60, "h": 3600, "d": 86400}
_SPELLINGS: Final = {"m": "min", "sec": "s", "second": "s", "minute": "min", "hour": "h", "day": "d"}
_RATE: Final = re.compile(r"(?P<number>[0-9]{1,12}(?:\.[0-9]{1,12})?) ?(?:/|per) ?(?P<unit>[a-z]+)", re.ASCII)
SLOWEST: Final = 1 / UNITS["d"]  # events per second
FASTEST: Final = 1_000_000
EXPECTED: Final = "a number of events and a unit of time: 50/s, 1000/min, 0.5/s, 20/h"


def parse_rate(text: str) -> str:
    """The rate as it is stored: `50/s`, `1000/min`, `20/h`, `1/d`. Raises ValueError with the accepted forms."""
    found = _RATE.fullmatch(text.strip().lower())
    unit = _SPELLINGS.get(found["unit"], found["unit"]) if found else ""
    if found is None or unit not in UNITS:
        raise ValueError(f"must be {EXPECTED}")
    whole, _, fraction = found["number"].partition(".")
    fraction = fraction.rstrip("0")
    rate = f"{whole.lstrip('0') or '0'}{'.' if fraction else ''}{fraction}/{unit}"
    if per_second(rate) == 0:
        raise ValueError("must be more than 0; to stop all claims, pause the box")
    if not SLOWEST * (1 - 1e-9) <= per_second(rate) <= FASTEST:
        raise ValueError(f"must be between 1/d and {FASTEST}/s")
    return rate


def double(rate: str) -> str:
    """Twice the rate, as it is written; not above the fastest."""
    number, _, unit = rate.partition("/")
    return f"{min(2 * float(number), FASTEST * UNITS[unit]):.12g}/{unit}"


def per_second(rate: str) -> float:
    """The events per second of a stored rate."""
    number, _, unit = rate.partition("/")
    return float(number) / UNITS[unit]
