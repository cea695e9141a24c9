"""What the screen shows: the last readings, and the dialog with the operator."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from redbox.box.desk.rates import Rates
    from redbox.box.desk.recent_errors import RecentError
    from redbox.box.reports import PausedKey, Stats

HISTORY: Final = 600  # readings that the sparklines can show
SERIES: Final = ("put", "published", "failed")

Mode = Literal["watch", "help", "event", "ask id", "ask why", "confirm"]


@dataclass
class View:
    """The state of the screen. `away`: why the store does not answer, if it does not. `prompt` is the question at the
    bottom, `typed` the answer so far, `message` the result of the last action, `pages` the text of an event."""

    where: str
    stats: Stats | None = None
    away: str = ""
    paused_keys: list[PausedKey] = field(default_factory=list)
    errors: tuple[RecentError, ...] = ()
    rates: dict[str, deque[float | None]] = field(
        default_factory=lambda: {name: deque(maxlen=HISTORY) for name in SERIES}
    )
    mode: Mode = "watch"
    prompt: str = ""
    typed: str = ""
    message: str = ""
    pages: list[str] = field(default_factory=list)

    def add(self, rates: Rates) -> None:
        for name in SERIES:
            self.rates[name].append(getattr(rates, name))
