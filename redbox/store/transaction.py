"""Events and the caller's own writes in one MULTI/EXEC.

Everything that could be refused is checked first, under WATCH; inside EXEC nothing is refused any more. When a watched
key changes in between, the whole exchange is made again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

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
from redbox.store.codec import EncodedEvent, put_arguments
from redbox.store.scripts.replies import PutReply, is_stored, read_put_replies
from redbox.store.server.durability import Durability
from redbox.store.store import Store
from redbox.store.wire.base import Command, redirection

TURNS: Final = 20  # attempts


class Committed(NamedTuple):
    """A transaction that was committed: the replies of the put script, and those to the caller's own commands."""

    puts: list[PutReply]
    replies: list[Any]


class NotCommitted(NamedTuple):
    """A transaction whose events were refused: nothing was written."""

    puts: list[PutReply]


async def transact(
    store: Store,
    commands: Sequence[Command],
    events: Sequence[EncodedEvent],
    unique_keys: Sequence[str],
    durability: Durability,
) -> Committed | NotCommitted:
    """Commits the events and the caller's commands together, or neither of them."""
    script = await store.scripts.script("put")
    confirmation = await store.scripts.confirmations.of(durability)
    meta, box = keys.meta(store.box), store.box
    watched = [meta, *(keys.event(box, event.event_id) for event in events)]
    watched += [keys.unique(box, unique) for unique in unique_keys]
    asking = [("WATCH", *watched), ("EVAL", script.text, 1, meta, *put_arguments("check", events))]
    writing: list[Command] = [("MULTI",), *commands]
    if events:
        writing.append(("EVAL", script.text, 1, meta, *put_arguments("sure", events)))
    writing.append(("EXEC",))
    writing.extend(confirmation.commands)

    met: Exception | None = None
    for _ in range(TURNS):
        wire, sent = await store.exchanges.wire(), False
        try:
            async with store.exchanges.session(wire) as talk:
                replies = await talk(asking)
                if met := redirection(replies):
                    await wire.follow(met)
                    continue
                watching, checked = replies
                if isinstance(watching, Exception):
                    raise store.exchanges.translate(watching, maybe=False) from watching
                if isinstance(checked, Exception):
                    await talk([("UNWATCH",)])
                    raise await store.scripts.error(checked) from checked
                if not all(map(is_stored, puts := read_put_replies(checked))):
                    await talk([("UNWATCH",)])
                    return NotCommitted(puts)
                sent = True
                replies = await talk(writing)
        except (RedisError, OSError) as error:
            raise store.exchanges.translate(error, maybe=sent) from error
        outcome = replies[len(commands) + 1 + bool(events)]
        if outcome is None:  # a watched key changed in between
            continue
        if isinstance(outcome, Exception):
            cause = next((reply for reply in replies if isinstance(reply, Exception)), outcome)
            raise _why_not_committed(store, replies, cause) from cause
        if events and isinstance(outcome[-1], Exception):
            failure = await store.scripts.error(outcome[-1])
            if not commands:
                raise failure from outcome[-1]
            raise PartlyCommitted(f"your own commands are committed, the events are not: {failure}") from outcome[-1]
        shortfall = await store.scripts.confirmations.shortfall(
            confirmation, replies[len(commands) + 2 + bool(events) :]
        )
        if shortfall:
            raise DurabilityNotReached(f"the transaction was committed, but {durability.name} {shortfall}")
        return Committed(read_put_replies(outcome[-1]) if events else [], outcome[: len(commands)])
    if met is not None:
        raise store.exchanges.translate(met, maybe=False) from met
    often = f"other clients changed the same keys {TURNS} times in a row"
    raise TransactionFailed(f"{often}; nothing was written; try again")


def _why_not_committed(store: Store, replies: Sequence[Any], cause: Exception) -> RedboxError:
    """Why EXEC was refused; nothing was written then."""
    if redirection(replies) or isinstance(cause, ClusterCrossSlotError):
        return TransactionFailed(
            "nothing was written: a key of your own is not in the box's cluster slot; name it with tx.key(...)"
        )
    error = store.exchanges.translate(cause, maybe=False)
    if isinstance(error, StoreFull | StoreUnavailable):  # the same error as if it had come a moment earlier
        return error
    return TransactionFailed(f"the transaction did not commit, nothing was written: {cause}")
