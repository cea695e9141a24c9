"""Events and the caller's own Redis writes, committed together or not at all."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Final, Self, get_args

from msgspec import Struct
from redis.asyncio import ConnectionPool
from redis.asyncio.client import Pipeline

from redbox import keys
from redbox.arguments import one_of, text
from redbox.box.put import InTransaction, Puts
from redbox.errors import PartlyCommitted, TransactionFailed, UsageError
from redbox.events import Event, Receipt, as_event
from redbox.settings import BATCH_BYTES, BATCH_COUNT
from redbox.store.codec import EncodedEvent
from redbox.store.store import Store
from redbox.store.transaction import Committed, transact
from redbox.telemetry import current_traceparent

#: Commands that end a transaction, change the state of the connection, or take it over.
NOT_IN_A_TRANSACTION: Final = frozenset(
    {
        "WATCH", "UNWATCH", "MULTI", "EXEC", "DISCARD", "SELECT", "SWAPDB", "RESET", "QUIT", "HELLO", "AUTH",
        "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "MONITOR", "CLIENT", "SHUTDOWN",
    }
)  # fmt: skip

OUTSIDE: Final = "a transaction takes events and commands only inside its own 'with' block"


class Recorder(Pipeline):
    """Takes every command of redis-py and only queues it."""

    def __init__(self) -> None:
        super().__init__(ConnectionPool(), {}, transaction=True, shard_hint=None)
        self.open = False

    def pipeline_execute_command(self, *args: Any, **options: Any) -> Any:
        if not self.open:
            raise UsageError(OUTSIDE)
        return super().pipeline_execute_command(*args, **options)  # type: ignore[no-untyped-call]

    def __await__(self) -> Any:
        raise UsageError("do not await tx.redis: it only queues; the replies are in tx.results after the block")

    def watch(self, *names: Any) -> Any:  # noqa: ARG002  # redis-py's signature
        raise UsageError("tx.redis only queues plain commands; the transaction itself watches keys")

    async def execute(self, raise_on_error: bool = True) -> Any:  # noqa: ARG002  # redis-py's signature
        raise UsageError("tx.redis only queues; everything is sent when the block ends, its replies are tx.results")

    async def immediate_execute_command(self, *args: Any, **options: Any) -> Any:  # noqa: ARG002  # same
        raise UsageError(f"tx.redis only queues plain commands; {args[0]} is not one of them")


class Transaction:
    """`async with box.transaction() as tx:` one MULTI/EXEC.

    `tx.redis` takes the caller's commands and only queues them: nothing is sent before the block ends, and nothing at
    all when it raises. After the block, `tx.results` holds the replies to the caller's commands and `tx.receipts` a
    receipt for each event. On a cluster the caller's keys must be in the box's slot: `tx.key("user:42")` names one.
    """

    def __init__(self, store: Store, puts: Puts, durability: str | None) -> None:
        self._store = store
        self._durability = puts.level(durability)
        self._encode = puts.encode
        self._receipts = puts.receipts
        self._events: list[tuple[Event, EncodedEvent]] = []
        self._entered = False
        self.redis = Recorder()
        self.results: list[Any] = []
        self.receipts: list[Receipt] = []

    def put(self, event: Event | Struct, *, on_conflict: InTransaction = "raise") -> str:
        """Adds an event; returns its id. It is validated here and written when the block ends."""
        if not self.redis.open:
            raise UsageError(OUTSIDE)
        one_of("on_conflict", on_conflict, get_args(InTransaction))
        checked = as_event(event)
        self._events.append((checked, self._encode(checked, current_traceparent(), on_conflict)))
        return checked.event_id

    def key(self, name: str) -> str:
        """A key name of the caller's own that is in the box's cluster slot."""
        if "{" in text("the key", name):
            raise UsageError(f"{name!r}: braces would put the key into another cluster slot")
        return f"{name}:{keys.prefix(self._store.box)}"

    async def __aenter__(self) -> Self:
        if self._entered:
            raise UsageError("a transaction is for one block; begin another with box.transaction()")
        self._entered = self.redis.open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.redis.open = False
        if error is None:
            await self._commit()

    async def _commit(self) -> None:
        commands: list[tuple[Any, ...]] = [tuple(args) for args, _ in self.redis.command_stack]
        for command in commands:
            word = (command[0].decode() if isinstance(command[0], bytes) else str(command[0])).upper().split(" ")[0]
            if word in NOT_IN_A_TRANSACTION:
                raise UsageError(f"tx.redis takes plain commands only; {word} would leave the transaction")
        if len(self._events) > BATCH_COUNT or sum(len(each.body) for _, each in self._events) > BATCH_BYTES:
            raise UsageError(f"a transaction takes up to {BATCH_COUNT:,} events or {BATCH_BYTES:,} bytes")
        if not commands and not self._events:
            return
        events, encoded = [event for event, _ in self._events], [each for _, each in self._events]
        unique_keys = [event.unique_key for event in events if event.unique_key is not None]
        if any(each.replaces for each in encoded):
            await self._store.permit_replacing()
        outcome = await transact(self._store, commands, encoded, unique_keys, self._durability)
        if not isinstance(outcome, Committed):
            for event, reply in zip(events, outcome.puts, strict=True):
                self._receipts.of(event, reply, self._durability)  # raises for the one that was refused
            raise TransactionFailed
        self.receipts = [
            self._receipts.of(event, reply, self._durability) for event, reply in zip(events, outcome.puts, strict=True)
        ]
        self.results = outcome.replies
        for command, reply in zip(commands, self.results, strict=True):
            if isinstance(reply, Exception):
                raise PartlyCommitted(
                    f"your own command {command[0]} failed ({reply}); Redis does not roll back: the events and your "
                    "other commands are committed"
                ) from reply
