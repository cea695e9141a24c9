"""`null:` acknowledges every event and delivers none; for trials and benchmarks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from redbox.events import Claim
from redbox.publishers.base import Publisher
from redbox.publishers.options import check_bare_scheme


class NullPublisher(Publisher):
    """Discards events."""

    many: ClassVar[int] = 1000
    target = "null:"

    def __init__(self, url: str = "null:") -> None:
        check_bare_scheme(url, "null")

    async def publish(self, claim: Claim) -> None:
        pass

    async def publish_many(self, claims: Sequence[Claim]) -> Sequence[BaseException | None]:
        return [None] * len(claims)
