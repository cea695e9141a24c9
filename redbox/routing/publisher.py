"""`box:NAME` and `box+redis://host:port/db/NAME`: puts a copy of each event into another box."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from redbox.box import Box
from redbox.events import Claim
from redbox.publishers.base import Publisher
from redbox.routing.address import read_address
from redbox.routing.destination import Destination, copy_of, too_many_hops
from redbox.store.server.durability import Durability


class BoxPublisher(Publisher):
    """Puts events into a box. `durability`: what each put waits for; by default as the relay's box does."""

    many: ClassVar[int] = 1000

    def __init__(self, url: str, *, durability: str | None = None) -> None:
        if durability is not None:
            Durability.parse(durability)
        self._destination = Destination(read_address(url), durability)
        self._source = ""

    @property
    def target(self) -> str:
        return self._destination.address.text

    def attach(self, box: Box) -> None:
        self._destination.attach(box)

    async def open(self, box: str) -> None:
        self._source = box
        await self._destination.open()

    async def aclose(self) -> None:
        await self._destination.aclose()

    async def publish(self, claim: Claim) -> None:
        (problem,) = await self.publish_many((claim,))
        if problem is not None:
            raise problem

    async def publish_many(self, claims: Sequence[Claim]) -> Sequence[BaseException | None]:
        outcomes: list[BaseException | None] = [too_many_hops(claim) for claim in claims]
        chosen = [at for at, outcome in enumerate(outcomes) if outcome is None]
        sent = [claims[at] for at in chosen]
        results = await self._destination.put(sent, [copy_of(claim, self._source) for claim in sent])
        for at, result in zip(chosen, results, strict=True):
            outcomes[at] = None if isinstance(result, bool) else result
        return outcomes
