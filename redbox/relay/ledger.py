"""The claims that a relay holds, and how many payload bytes they keep in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from redbox.relay.settler import Held


class Ledger:
    """Every claim from the moment it arrives until it is settled or lost.

    Claims are told apart as objects. Neither the claim number nor the event id would do: a server that lost its data
    counts claims from 1 again, and the same event may be put again.
    """

    def __init__(self) -> None:
        self._helds: set[Held] = set()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._helds)

    def __iter__(self) -> Iterator[Held]:
        return iter(list(self._helds))

    def __contains__(self, held: Held) -> bool:
        return held in self._helds

    @property
    def ours(self) -> int:
        """How many of the claims are not lost."""
        return sum(not held.lost for held in self._helds)

    @property
    def only(self) -> str:
        """The id of the event if one claim is held, else nothing."""
        return next(iter(self._helds)).claim.event_id if len(self._helds) == 1 else ""

    def add(self, helds: Iterable[Held]) -> None:
        for held in helds:
            self._helds.add(held)
            self.bytes += len(held.claim.event.payload)

    def remove(self, helds: Iterable[Held]) -> None:
        """Removes claims; those that are not here change nothing."""
        for held in helds:
            if held in self._helds:
                self._helds.remove(held)
                self.bytes -= len(held.claim.event.payload)
