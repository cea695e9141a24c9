"""The lifecycle as a small pure-Python model: what a box must do, without Redis, scripts or indexes.

Time is a number of seconds that only `now += ...` moves. The durations of the state machine are so long that the real
milliseconds of a run never matter.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

PENDING, CLAIMED, PUBLISHED, DEAD = "PENDING", "CLAIMED", "PUBLISHED", "DEAD"


@dataclass
class Item:
    id: str
    ordering_key: str | None
    unique_key: str | None
    scope: str
    available: float
    place: int = 0
    state: str = PENDING
    attempts: int = 0
    earlier: int = 0  # attempts before the last replay
    excused: int = 0
    expiries: int = 0
    number: int = 0
    claimed_by: str | None = None
    lease_end: float = 0
    company: bool = False
    exhausted: bool = False
    alone: bool = False
    last_error: str | None = None

    @property
    def tried(self) -> int:
        return self.attempts - self.earlier

    @property
    def claimed_once(self) -> bool:
        return self.number > 0

    @property
    def live(self) -> bool:
        return self.state in (PENDING, CLAIMED)

    @property
    def suspect(self) -> bool:
        return self.state == PENDING and self.expiries >= 2


@dataclass
class Handed:
    """A claim as a relay remembers it; the store may no longer have it."""

    id: str
    number: int
    relay: str


@dataclass
class Model:
    now: float = 0
    policy: str = "skip"
    paused_until: float = 0
    key_pauses: dict[str, float] = field(default_factory=dict)  # until a claim or a reap notices that they are over
    numbers: int = 0
    places: int = 0
    items: dict[str, Item] = field(default_factory=dict)
    lines: dict[str, list[str]] = field(default_factory=dict)

    # --- queries ---------------------------------------------------------------------------------------------

    @property
    def paused(self) -> bool:
        return self.paused_until > self.now

    def is_head(self, item: Item) -> bool:
        return item.ordering_key is None or self.lines[item.ordering_key][0] == item.id

    def waiting(self, item: Item) -> bool:
        return item.state == PENDING and not self.claimable(item)

    def claimable(self, item: Item) -> bool:
        """Whether neither its line nor a pause of its ordering key holds the event back."""
        return self.is_head(item) and item.ordering_key not in self.key_pauses

    def due(self, *, suspects: bool) -> list[Item]:
        ready = [item for item in self.items.values() if item.state == PENDING and item.available <= self.now]
        return [item for item in ready if self.claimable(item) and item.suspect == suspects]

    def suspect_out(self) -> bool:
        return any(item.state == CLAIMED and item.alone for item in self.items.values())

    def holders(self, unique_key: str, scope: str) -> set[str]:
        """Returns the live events that hold a key against a new event with this scope."""
        live = [item for item in self.items.values() if item.unique_key == unique_key and item.live]
        if scope == "ALL_LIVE":
            return {item.id for item in live}
        return {i.id for i in live if i.state == PENDING and (i.tried == 0 or i.available <= self.now)}

    def held(self, claim: Handed) -> Item | None:
        """Returns the event if the claim is still held: the fence."""
        item = self.items.get(claim.id)
        if item and item.state == CLAIMED and (item.claimed_by, item.number) == (claim.relay, claim.number):
            return item
        return None

    def blocked(self) -> set[str]:
        return {key for key, ids in self.lines.items() if ids and self.items[ids[0]].state == DEAD}

    # --- transitions -----------------------------------------------------------------------------------------

    def put(self, item: Item) -> None:
        self.items[item.id] = item
        if item.ordering_key is not None:
            self._to_the_tail(item)

    def claim(self, ids: Iterable[str], relay: str, lease: float, limit: int, holding: int) -> list[Handed]:
        taken = [self.items[id_] for id_ in ids]
        handed = []
        for item in taken:
            self.numbers += 1
            item.alone = item.suspect
            item.state, item.claimed_by, item.number = CLAIMED, relay, self.numbers
            item.lease_end = self.now + lease
            item.exhausted = 0 < limit <= item.attempts - item.excused
            if not item.exhausted:
                item.attempts += 1
            item.company = not item.exhausted and (len(taken) > 1 or holding > 0)
            handed.append(Handed(item.id, item.number, relay))
        return handed

    def end_key_pauses(self) -> None:
        self.key_pauses = {key: ends for key, ends in self.key_pauses.items() if ends > self.now}

    def ack(self, item: Item) -> None:
        self._unclaim(item, PUBLISHED)
        item.expiries = 0
        self._leave_line(item)

    def retry(self, item: Item, delay: float, error: str) -> None:
        self._unclaim(item, PENDING)
        item.available, item.last_error, item.expiries = self.now + delay, error, 0

    def release(self, item: Item, delay: float | None) -> None:
        if not item.exhausted:
            item.excused += 1
        self._unclaim(item, PENDING)
        if delay is not None:
            item.available = self.now + delay

    def expired(self) -> list[Item]:
        return [item for item in self.items.values() if item.state == CLAIMED and item.lease_end <= self.now]

    def reap(self, item: Item) -> None:
        item.last_error = f"lease expired while held by {item.claimed_by}"
        if item.company:
            item.excused += 1
        item.expiries += 1
        self._unclaim(item, PENDING)
        item.available = self.now

    def kill(self, item: Item, reason: str, *, operator: bool = False) -> None:
        if operator:
            self.numbers += 1
            item.number = self.numbers
        blocks = self.policy == "block" and item.ordering_key is not None and self.is_head(item)
        self._unclaim(item, DEAD)
        item.last_error, item.expiries = reason, 0
        if not blocks:
            self._leave_line(item)

    def replay(self, item: Item, delay: float, *, reset: bool) -> None:
        died = item.state == DEAD
        item.state, item.available, item.expiries = PENDING, self.now + delay, 0
        if reset:
            item.excused = item.earlier = item.attempts
            item.last_error = None
        line = self.lines.get(item.ordering_key or "", [])
        if item.ordering_key is None or item.id in line:
            return
        head = self.items[line[0]] if line else None
        passes = head is None or head.place < item.place or (head.state == PENDING and head.tried == 0)
        if died and self.policy == "block" and passes:
            self.lines[item.ordering_key] = sorted([*line, item.id], key=lambda id_: self.items[id_].place)
        else:
            self._to_the_tail(item)

    def drop(self, item: Item) -> None:
        self._leave_line(item)
        del self.items[item.id]

    def sweepable(self) -> list[Item]:
        return [i for i in self.items.values() if not i.live and i.id not in self.lines.get(i.ordering_key or "", [])]

    def set_policy(self, policy: str) -> None:
        self.policy = policy
        if policy == "skip":
            for key in self.blocked():
                self.lines[key].pop(0)

    def _unclaim(self, item: Item, state: str) -> None:
        item.state, item.claimed_by = state, None
        item.company = item.exhausted = item.alone = False

    def _to_the_tail(self, item: Item) -> None:
        assert item.ordering_key is not None
        self.places += 1
        item.place = self.places
        self.lines.setdefault(item.ordering_key, []).append(item.id)

    def _leave_line(self, item: Item) -> None:
        line = self.lines.get(item.ordering_key or "", [])
        if item.id in line:
            line.remove(item.id)
