"""The events that `redbox relay --once` leaves in its box, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from redbox.durations import format_duration

if TYPE_CHECKING:
    from redbox.box.reports import Stats


class Leftovers(msgspec.Struct, frozen=True, kw_only=True):
    """Events that are not settled; each is counted once.

    `behind`: due, but another event of their ordering key comes first, or the key is paused. Events that are not due
    yet are `scheduled` or `in_back_off`. `blocked`: ordering keys that a dead event blocks; `paused_keys`: ordering
    keys that are paused. `limit`: the limit of the box that holds the available ones back.
    """

    available: int
    scheduled: int
    in_back_off: int
    behind: int
    in_flight: int
    blocked: int
    next_due: float | None
    paused: bool
    paused_keys: int = 0
    limit: str = ""

    @property
    def count(self) -> int:
        return self.available + self.scheduled + self.in_back_off + self.behind + self.in_flight

    def in_words(self, problem: str) -> str:
        """`3 events are left: 2 in back-off, ...; the next is due in 10 min`. `problem`: why some are available."""
        parts = [
            f"{self.in_back_off:,} in back-off" if self.in_back_off else "",
            f"{self.scheduled:,} scheduled" if self.scheduled else "",
            self._behind() if self.behind else "",
            f"{self.available:,} available ({self._why(problem)})" if self.available else "",
            f"{self.in_flight:,} held by other relays" if self.in_flight else "",
        ]
        due = "" if self.next_due is None else f"; the next is due in {format_duration(self.next_due)}"
        are = "event is" if self.count == 1 else "events are"
        return f"{self.count:,} {are} left: {', '.join(part for part in parts if part)}{due}"

    def _behind(self) -> str:
        reasons = []
        if self.blocked == 1:
            reasons.append("1 key is blocked by a dead event: replay or drop it")
        elif self.blocked:
            reasons.append(f"{self.blocked:,} keys are blocked by dead events: replay or drop them")
        if self.paused_keys:
            are, it = ("key is", "it") if self.paused_keys == 1 else ("keys are", "one")
            reasons.append(f"{self.paused_keys:,} {are} paused: `redbox resume --key KEY` resumes {it}")
        head = f"{self.behind:,} behind the head of {'its' if self.behind == 1 else 'their'} ordering key"
        paused = ", or of a paused key" if self.paused_keys else ""
        return head + paused + (f" ({'; '.join(reasons)})" if reasons else "")

    def _why(self, problem: str) -> str:
        if self.paused:
            return "the box is paused"
        return problem or (f"held back by {self.limit}" if self.limit else "added or returned meanwhile")


def leftovers(stats: Stats) -> Leftovers:
    """The events of a box that are not settled."""
    phases = {phase.value: count for phase, count in stats.phases.items()}
    return Leftovers(
        available=phases["AVAILABLE"] - stats.waiting_due,
        scheduled=phases["SCHEDULED"],
        in_back_off=phases["RETRY_SCHEDULED"],
        behind=stats.waiting_due,
        in_flight=phases["IN_FLIGHT"],
        blocked=stats.blocked,
        next_due=None if stats.next_due is None else stats.next_due.total_seconds(),
        paused=stats.paused,
        paused_keys=stats.paused_keys,
        limit=next(iter(stats.limits_reached), ""),
    )
