"""Why no event of a box is delivered at the moment, for those who are about to wait for one."""

from __future__ import annotations

from redbox.box.reports import Stats


def delivery_obstacle(stats: Stats) -> str:
    """`the box is paused`, `no relay is alive` or `the breaker of the only relay is open: HTTP 503`; else empty."""
    if stats.paused:
        return "the box is paused"
    alive = [relay for relay in stats.relays if relay.alive]
    if not alive:
        return "no relay is alive"
    if not all(relay.breaker_open for relay in alive):
        return ""
    whose = "breaker of the only relay is" if len(alive) == 1 else f"breakers of all {len(alive):,} relays are"
    reason = f": {alive[0].reason}" if alive[0].reason else ""
    return f"the {whose} open{reason}"
