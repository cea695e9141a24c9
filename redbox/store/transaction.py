"""An event and the caller's own writes in one MULTI/EXEC.

Everything that could refuse is asked first, under WATCH; what runs inside EXEC cannot refuse any more. When a watched
key changed in between, the whole exchange is made again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from redis.exceptions import ClusterCrossSlotError, RedisError

from redbox import keys
from redbox.errors import (
    DurabilityNotReached,
    PartlyCommitted,
    RedboxError,
    StoreFull,
    StoreUnavailable,
    TransactionFailed,
)
from redbox.store.durability import Durability
from redbox.store.store import CREATED, EXISTS, Store
from redbox.store.wire.base import Command, redirection

TURNS: Final = 20


class Committed:
    """What a transaction did: the put script's replies, and the replies to the caller's own commands."""

    def __init__(self, puts: list[Any], replies: list[Any]) -> None:
        self.puts = puts
        self.replies = replies


async def transact(
    store: Store,
    commands: Sequence[Command],
    events: Sequence[tuple[Any, ...]],
    unique_keys: Sequence[str],
    durability: Durability,
) -> Committed | list[Any]:
    """Commits, or returns the replies of the put script that refused; then nothing was written."""
    script = await store.script("put")
    confirmation = await store.confirmation(durability)
    meta, box = keys.meta(store.box), store.box
    arguments = [part for event in events for part in event]
    watched = [meta, *(keys.event(box, event[0]) for event in events)]
    watched += [keys.unique(box, unique) for unique in unique_keys]
    asking = [("WATCH", *watched), ("EVAL", script.text, 1, meta, "check", *arguments)]
    writing: list[Command] = [("MULTI",), *commands]
    if events:
        writing.append(("EVAL", script.text, 1, meta, "sure", *arguments))
    writing.append(("EXEC",))
    writing.extend(confirmation.commands)

    met: Exception | None = None
    for _ in range(TURNS):
        wire, sent = await store.wire(), False
        try:
            async with store.session(wire) as talk:
                replies = await talk(asking)
                if met := redirection(replies):
                    await wire.follow(met)
                    continue
                watching, checked = replies
                if isinstance(watching, Exception):
                    raise store.translate(watching, maybe=False) from watching
                if isinstance(checked, Exception):
                    await talk([("UNWATCH",)])
                    raise store.script_error(checked) from checked
                if any(reply not in (CREATED, EXISTS) for reply in checked):
                    await talk([("UNWATCH",)])
                    return list(checked)
                sent = True
                replies = await talk(writing)
        except (RedisError, OSError) as error:
            raise store.translate(error, maybe=sent) from error
        outcome = replies[len(commands) + 1 + bool(events)]
        if outcome is None:  # a watched key changed in between
            continue
        if isinstance(outcome, Exception):
            cause = next((reply for reply in replies if isinstance(reply, Exception)), outcome)
            raise _why_not_committed(store, replies, cause) from cause
        if events and isinstance(outcome[-1], Exception):
            told = store.script_error(outcome[-1])
            if not commands:
                raise told from outcome[-1]
            raise PartlyCommitted(f"your own commands are committed, the events are not: {told}") from outcome[-1]
        shortfall = await store.shortfall(confirmation, replies[len(commands) + 2 + bool(events) :])
        if shortfall:
            raise DurabilityNotReached(f"the transaction was committed, but {durability.name} {shortfall}")
        return Committed(outcome[-1] if events else [], outcome[: len(commands)])
    if met is not None:
        raise store.translate(met, maybe=False) from met
    raise TransactionFailed(f"the transaction met others {TURNS} times in a row and gave up; nothing was written")


def _why_not_committed(store: Store, replies: Sequence[Any], cause: Exception) -> RedboxError:
    """Why EXEC was refused; nothing was written then."""
    if redirection(replies) or isinstance(cause, ClusterCrossSlotError):
        return TransactionFailed(
            "nothing was written: a key of your own is not in the box's cluster slot; name it with tx.key(...)"
        )
    told = store.translate(cause, maybe=False)
    if isinstance(told, StoreFull | StoreUnavailable):  # the same error as if it had come a moment earlier
        return told
    return TransactionFailed(f"the transaction did not commit, nothing was written: {cause}")
