"""Steps of several tests in this folder."""

from __future__ import annotations

from redbox import Box, Claim


async def totals_of(box: Box) -> dict[str, int]:
    return (await box.stats()).totals


async def claim_all(box: Box) -> list[Claim]:
    """What is available, in as many claims as it takes."""
    claims: list[Claim] = []
    while found := await box.claim("relay-1", limit=1000):
        claims += found
    return claims
