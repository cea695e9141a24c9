"""The limits of the box that a relay was started with: it writes them as settings of the box before its first claim."""

from __future__ import annotations

import logging
from typing import Any, Final

import anyio

from redbox.box import Box
from redbox.errors import PASSING, EmbeddedServerFailed
from redbox.relay.digest import Digest
from redbox.relay.dispatcher import DRAIN_PATIENCE
from redbox.relay.outcomes.settler import pauses
from redbox.relay.run_state import RunState
from redbox.settings import to_meta

logger = logging.getLogger("redbox.relay")

WHY: Final = "option of the relay"


def check_limits(**limits: Any) -> dict[str, Any]:
    """The limits that are given, as the box stores them. Raises InvalidSetting."""
    given = {name: value for name, value in limits.items() if value is not None}
    stored = to_meta(given)
    return {name: stored[name] if isinstance(value, str) else value for name, value in given.items()}


class BoxLimits:
    """Writes the limits. A limit that is not given is left as it is; of two relays, the one that starts last wins."""

    def __init__(self, box: Box, relay: str, limits: dict[str, Any]) -> None:
        self._box = box
        self._relay = relay
        self._limits = limits

    async def write(self, state: RunState, digest: Digest, *, drain: bool) -> None:
        """Writes them, as soon as the store answers. A relay claims nothing before that."""
        delays = pauses()
        while self._limits and not state.stopping:
            try:
                await self.write_once()
            except PASSING as error:
                delay = next(delays)
                if isinstance(error, EmbeddedServerFailed) or (drain and delay > DRAIN_PATIENCE):
                    raise
                digest.store_failed("limits", f"setting the limits again in {delay:.2f} s", error)
                await state.wait_for(anyio.sleep(delay))
            else:
                digest.store_answered("limits")
                return

    async def write_once(self) -> dict[str, Any]:
        """Writes those that the box does not have yet, and returns them."""
        before = (await self._box.stats()).settings
        changes = {name: value for name, value in self._limits.items() if getattr(before, name) != value}
        if changes:
            await self._box.operate.configure(who=self._relay, why=WHY, **changes)
        for name, value in changes.items():
            earlier = getattr(before, name)
            level = logging.INFO if earlier is None else logging.WARNING
            was = "" if earlier is None else f"; it was {earlier}, set by an operator or another relay"
            logger.log(level, "%s of box %s is now %s%s", name, self._box.name, value, was)
        return changes
