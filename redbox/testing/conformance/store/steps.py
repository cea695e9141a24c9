"""Steps of several tests in this folder."""

from __future__ import annotations

from redbox import Box, Claim


async def totals_of(box: Box) -> dict[str, int]:
    return (await box.stats()).totals


async def claim_all(box: Box) -> list[Claim]:
    """Claims all available events, in as many calls as needed."""
    claims: list[Claim] = []
    while found := await box.claim("relay-1", limit=1000):
        claims += found
    return claims
