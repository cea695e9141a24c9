"""A claim as its relay holds it."""

from __future__ import annotations

from redbox.events import Claim


class Held:
    """A claim, and what the relay knows about it. All times are on the event loop's clock, in seconds.

    `claimed_at`: when it was claimed. `started_at`: when its publish started. `deadline`: the earliest time at which
    its lease may end. `lost`: the claim is no longer ours. `dead_reason`: why the event is to be marked DEAD, while
    the dead-letter target has not received it.
    """

    __slots__ = ("claim", "claimed_at", "dead_reason", "deadline", "lost", "started_at")

    def __init__(self, claim: Claim, claimed_at: float, deadline: float) -> None:
        self.claim = claim
        self.claimed_at = self.started_at = claimed_at
        self.deadline = deadline
        self.lost = False
        self.dead_reason: BaseException | None = None
