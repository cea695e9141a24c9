"""Routes: patterns of event types, and the boxes that get the events whose type matches."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

from redbox.arguments import shown, text
from redbox.box import Box
from redbox.box.beside import connection_losses
from redbox.box.copies import Copy
from redbox.errors import InvalidURL, NotPublished, Reject, RetryLater, UsageError
from redbox.events import Claim
from redbox.publishers.base import Publisher
from redbox.routing.address import PREFIX, is_box, read_address
from redbox.routing.destination import Destination, Result, copy_of, too_many_hops
from redbox.routing.globs import compile_glob
from redbox.store.server.durability import Durability

NO_ROUTE: Final = "no route"
TYPES: Final = 10_000  # event types whose destinations are remembered
CONNECTION_LOST: Final = "the connection was lost, and with it perhaps copies that were put before"
REACHED: Final = 100_000  # remembered events that some, but not all, of their destinations have


class PartlyPublished(RetryLater):
    """Some destinations got the event now, others did not. It is retried for those, and the attempt does not count."""


class Routes(Publisher):
    """Puts a copy of each event into every box whose pattern matches its type: `Routes({"order.*": ["box:billing",
    "box:search"], "mail.*": "box:mail"})`.

    `default`: the box, or boxes, of events that match no pattern; without one, they are DEAD with the reason "no
    route". All boxes are on the server of the relay's box. Each has a relay of its own, and so its own retries, breaker
    and dead letters. `durability`: what each put waits for; by default as the relay's box does.
    """

    many: ClassVar[int] = 1000

    def __init__(
        self,
        routes: Mapping[str, str | Iterable[str]],
        *,
        default: str | Iterable[str] | None = None,
        durability: str | None = None,
    ) -> None:
        if not isinstance(routes, Mapping) or not routes:
            raise UsageError('routes are a mapping of patterns to boxes, such as {"order.*": ["box:billing"]}')
        if durability is not None:
            Durability.parse(durability)
        self._destinations: dict[str, Destination] = {}
        self._durability = durability
        self._routes = [
            (compile_glob("a pattern of routes", glob), self._read(f"routes[{glob!r}]", targets))
            for glob, targets in routes.items()
        ]
        self._default = () if default is None else self._read("default", default)
        self._by_type: dict[str, tuple[Destination, ...]] = {}
        self._reached: dict[tuple[str, int], set[Destination]] = {}
        self._source = ""
        self._box: Box | None = None
        self._losses = 0  # connections that were lost before `_reached` was filled

    def _read(self, name: str, targets: Any) -> tuple[Destination, ...]:
        urls = [targets] if isinstance(targets, str) else targets
        if not isinstance(urls, Iterable) or isinstance(urls, bytes | Mapping):
            raise UsageError(f"{name}: must be a box such as 'box:billing', or a list of them, not {shown(targets)}")
        found = [self._destination(name, text(name, url)) for url in urls]
        if not found:
            raise UsageError(f"{name}: names no box")
        return tuple(dict.fromkeys(found))

    def _destination(self, name: str, url: str) -> Destination:
        try:
            check_destination(url)
        except UsageError as error:
            raise InvalidURL(f"{name}: {error}") from None
        address = read_address(url)
        return self._destinations.setdefault(address.name, Destination(address, self._durability))

    @property
    def boxes(self) -> tuple[str, ...]:
        """The names of all destinations."""
        return tuple(self._destinations)

    @property
    def target(self) -> str:
        return ", ".join(f"{PREFIX}{name}" for name in self._destinations)

    def attach(self, box: Box) -> None:
        for destination in self._destinations.values():
            destination.attach(box)
        self._box = box

    async def open(self, box: str) -> None:
        self._source = box
        self._reached.clear()

    # --- publishing ----------------------------------------------------------------------------------------------

    async def publish(self, claim: Claim) -> None:
        (problem,) = await self.publish_many((claim,))
        if problem is not None:
            raise problem

    async def publish_many(self, claims: Sequence[Claim]) -> Sequence[BaseException | None]:
        losses = self._forget_after_loss()
        outcomes: list[BaseException | None] = [self._rejection(claim) for claim in claims]
        work: dict[Destination, list[int]] = {}
        copies: dict[int, Copy] = {}
        for at, claim in enumerate(claims):
            if outcomes[at] is None:
                copies[at] = copy_of(claim, self._source)
                reached = self._reached.get(_key(claim), ()) if self._reached else ()
                for destination in self._destinations_of(claim.event.event_type):
                    if destination not in reached:
                        work.setdefault(destination, []).append(at)
        results: dict[int, list[tuple[Destination, Result]]] = {at: [] for at in copies}

        async def put(destination: Destination, chosen: list[int]) -> None:
            found = await destination.put([claims[at] for at in chosen], [copies[at] for at in chosen])
            for at, result in zip(chosen, found, strict=True):
                results[at].append((destination, result))

        async with asyncio.TaskGroup() as group:
            for destination, chosen in work.items():
                group.create_task(put(destination, chosen))
        lost = self._forget_after_loss() != losses  # during this call
        for at, found in results.items():
            if lost and len(found) < len(self._destinations_of(claims[at].event.event_type)):
                outcomes[at] = RetryLater(0.0, CONNECTION_LOST, excuse=True)
            elif not all(isinstance(result, bool) for _, result in found):
                outcomes[at] = self._problem(claims[at], found)
            elif self._reached:
                self._reached.pop(_key(claims[at]), None)
        if lost:
            self._reached.clear()
        return outcomes

    def _forget_after_loss(self) -> int:
        """Forgets which destinations have events if a connection was lost: a server that crashed may have lost the
        copies. Returns how many connections were lost so far."""
        losses = 0 if self._box is None else connection_losses(self._box)
        if losses != self._losses:
            self._losses = losses
            self._reached.clear()
        return losses

    def _rejection(self, claim: Claim) -> Reject | None:
        if not self._destinations_of(claim.event.event_type):
            return Reject(NO_ROUTE)
        return too_many_hops(claim)

    def _destinations_of(self, event_type: str) -> tuple[Destination, ...]:
        found = self._by_type.get(event_type)
        if found is None:
            if len(self._by_type) >= TYPES:
                self._by_type.clear()
            matching = [each for matches, boxes in self._routes if matches(event_type) for each in boxes]
            found = self._by_type[event_type] = tuple(dict.fromkeys(matching)) or self._default
        return found

    def _problem(self, claim: Claim, results: list[tuple[Destination, Result]]) -> NotPublished:
        """The outcome of an event that not all its destinations have. A destination that may accept it later comes
        before one that never will: the event must not be DEAD before every destination that accepts it has it."""
        problems = [result for _, result in results if not isinstance(result, bool)]
        waits = [problem for problem in problems if not isinstance(problem, Reject)]
        self._remember(claim, [destination for destination, result in results if isinstance(result, bool)])
        if not waits:
            self._reached.pop(_key(claim), None)
            return problems[0]
        if any(result is True for _, result in results):
            return PartlyPublished(getattr(waits[0], "delay", 0.0), str(waits[0]), excuse=True)
        return waits[0]

    def _remember(self, claim: Claim, reached: list[Destination]) -> None:
        """The event is not put there again while this process runs and its connection lasts. These boxes may have
        removed it already, and would take it for a new one."""
        if len(self._reached) >= REACHED:
            self._reached.pop(next(iter(self._reached)))
        self._reached.setdefault(_key(claim), set()).update(reached)


def check_destination(url: str) -> None:
    """Refuses a destination of a route that is not a box of the same server."""
    if not is_box(url):
        raise InvalidURL(
            "a route leads to boxes such as box:billing, so that a target that is down does not delay the others; "
            "make a box for this target, and a relay from that box to it"
        )
    if read_address(url).store is not None:
        raise InvalidURL(
            "a route leads to boxes of the same server, so that a server that is down does not delay the other "
            "destinations; make a box here, and a relay from that box to the one on the other server"
        )


def _key(claim: Claim) -> tuple[str, int]:
    """A replay changes when the event is due: it is sent everywhere again."""
    return claim.event_id, claim.due_ms
