"""The stats of a box as JSON: for `redbox --json stats`, and for the HTTP service."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from redbox.box.desk.rates import Rates
from redbox.box.reports import PausedKey, RelayReport, Stats
from redbox.errors import NotPermitted

if TYPE_CHECKING:
    from redbox.box import Box

NAMED_KEYS: Final = 3  # paused ordering keys


def as_json(stats: Stats, rates: Rates | None = None, keys: Sequence[PausedKey] = ()) -> dict[str, Any]:
    """The stats as one object; durations are in seconds. With `rates`, `keys` are the first paused ordering keys."""
    values = {name: getattr(stats, name) for name in stats.__struct_fields__}
    values["relays"] = [relay_json(relay) for relay in stats.relays]
    if rates is not None:
        values["rates"] = msgspec.structs.asdict(rates)
        values["first_paused_keys"] = list(keys)
    return {name: value.total_seconds() if isinstance(value, timedelta) else value for name, value in values.items()}


def relay_json(relay: RelayReport) -> dict[str, Any]:
    """A relay as one object; `silent`: it sent no heartbeat for some time."""
    values = {name: getattr(relay, name) for name in relay.__struct_fields__} | {"silent": not relay.alive}
    return {name: value.total_seconds() if isinstance(value, timedelta) else value for name, value in values.items()}


async def paused_keys(box: Box, stats: Stats) -> list[PausedKey]:
    """The first paused ordering keys; none if the user of this connection may not read them."""
    if not stats.paused_keys:
        return []
    try:
        return await box.operate.paused_keys(limit=NAMED_KEYS)
    except NotPermitted:
        return []
