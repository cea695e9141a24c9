"""Claims events, and settles claims. Every settlement is fenced: it changes nothing if the claim is gone."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Required, TypedDict

from redbox.arguments import counted, flag, shown, text, whole_number
from redbox.durations import Duration
from redbox.errors import InvalidEvent, NewerEvent, StoreError, UsageError
from redbox.events import Claim, check_key, duration_ms, stored_error_text
from redbox.settings import BATCH_BYTES, BATCH_COUNT, FORGET_RELAY, LEASE, STEP_BYTES, UNREADABLE_DELAY
from redbox.store.codec import decode_claim
from redbox.store.scripts.items import KillItem, RetryItem, SeenClaim
from redbox.store.scripts.replies import CLAIM_PARTS, ClaimedParts, Packed
from redbox.store.scripts.steps import STEP_COUNT, ack_work, batches
from redbox.store.server.durability import Durability
from redbox.store.store import ClaimRequest, Store
from redbox.store.wire.base import BlockingWait

logger = logging.getLogger("redbox")

ABOUT_LENGTH: Final = 16_384
ABOUT_FIELDS: Final = 32
MOST: Final = 2**53  # the largest whole number that is exact in Lua

Reason = str | BaseException
Send = Callable[[str, list[Claim]], Awaitable[list[bytes]]]


class ClaimOptions(TypedDict, total=False):
    """The options of `Box.claim_packed`."""

    limit: Required[int]
    lease: Required[Duration]
    attempts: Required[int | None]
    holding: Required[int]
    beside: str
    max_bytes: int
    longest: float
    wait: BlockingWait | None
    spread: bool


class Claims:
    """Claims and settles events of one box. The methods of Box with the same names say what each does."""

    def __init__(self, store: Store, durability: Durability) -> None:
        self._store = store
        self._durability = durability

    async def claim(
        self,
        relay: str,
        *,
        limit: int,
        lease: Duration,
        attempts: int | None,
        holding: int,
        beside: str = "",
        max_bytes: int = BATCH_BYTES,
        longest: float = 0.0,
        wait: BlockingWait | None = None,
        spread: bool = False,
    ) -> Packed:
        self._store.ensure_open()
        check_relay(relay)
        whole_number("limit", limit, 1, BATCH_COUNT)
        if attempts is not None:
            whole_number("attempts", attempts, 1, MOST)
        whole_number("holding", holding, 0, MOST)
        whole_number("max_bytes", max_bytes, 1, MOST)
        lease_ms = _positive_ms(lease, "lease")
        request: ClaimRequest = {
            "relay": relay, "limit": limit, "lease": lease_ms, "attempts": attempts or 0,
            "size": min(max_bytes, STEP_BYTES), "holding": holding, "beside": beside,
        }  # fmt: skip
        await self._store.scripts.confirmations.of(self._durability)  # nothing is claimed that could not be settled
        if wait is None:
            return await self._store.claim(**request, spread=spread)
        return await self._store.claim_when_hinted(**request, longest=longest, wait=wait)

    async def unpack(self, packed: Packed) -> list[Claim]:
        """The claims; an event that cannot be read is settled, and left out."""
        claims = []
        relay, number, now, lease, suspect = (
            packed.relay, packed.first, packed.claimed_ms, packed.lease_ms, packed.suspect,
        )  # fmt: skip
        for each in zip(*[iter(packed.parts)] * CLAIM_PARTS, strict=True):
            try:
                claims.append(decode_claim(each, relay, number, now, lease, suspect))
            except Exception as error:  # one bad event must not lose the other claims
                await self._set_aside(relay, ClaimedParts(*each), number, error)
            number += 1
        return claims

    async def beat(
        self, relay: str, instance: str, about: Mapping[str, str], *, fresh: Duration, leaving: bool = False
    ) -> dict[str, str]:
        self._store.ensure_open()
        check_relay(relay)
        if not isinstance(about, Mapping):
            raise UsageError("about must be a mapping of strings")
        fields = [(text("about", name), text("about", value)) for name, value in about.items()]
        # Every call of stats reads them.
        if len(fields) > ABOUT_FIELDS or sum(len(part) for pair in fields for part in pair) > ABOUT_LENGTH:
            raise UsageError(f"about must have at most {ABOUT_FIELDS} fields and {ABOUT_LENGTH:,} characters in all")
        return await self._store.beat(
            relay,
            text("instance", instance),
            fresh=duration_ms(fresh, "fresh"),
            forget=duration_ms(FORGET_RELAY, "forget"),
            leaving=flag("leaving", leaving),
            fields=fields,
        )

    async def _set_aside(self, relay: str, parts: ClaimedParts, number: int, error: Exception) -> None:
        """Settles an event that cannot be read: one of a newer redbox is released, a damaged one has failed."""
        event_id, exhausted = parts.event_id.decode(errors="replace"), parts.exhausted == 1
        delay = int(UNREADABLE_DELAY * 1000)
        logger.error("event %s was claimed, but is not published: %s", event_id, error, extra={"event_id": event_id})
        try:
            if isinstance(error, NewerEvent):
                await self._store.release(relay, [SeenClaim(event_id, number)], delay=delay)
            elif exhausted:
                await self._store.kill(relay, [KillItem(event_id, number, stored_error_text(error))])
            else:
                await self._store.retry(relay, [RetryItem(event_id, number, delay, 0, stored_error_text(error))])
        except StoreError as failure:  # it returns to PENDING when its lease expires
            logger.warning("event %s could not be settled: %s", event_id, failure, extra={"event_id": event_id})

    async def renew(
        self, claims: Claim | Iterable[Claim], *, lease: Duration = LEASE, alone: bool = False
    ) -> list[bool]:
        lease_ms = _positive_ms(lease, "lease")
        flag("alone", alone)

        async def send(relay: str, batch: list[Claim]) -> Any:
            return await self._store.renew(relay, lease_ms, [_fence(claim) for claim in batch], alone=alone)

        return await self._settle(claims, send)

    async def ack(self, claims: Claim | Iterable[Claim], *, delete: bool = False) -> list[bool]:
        flag("delete", delete)

        async def send(relay: str, batch: list[Claim]) -> Any:
            fences, work = [_fence(claim) for claim in batch], map(ack_work, batch)
            return await self._store.ack(relay, delete, fences, self._durability, work=work)

        return await self._settle(claims, send)

    async def retry(
        self,
        claims: Claim | Iterable[Claim],
        *,
        error: Reason | Sequence[Reason] = "",
        delay: Duration | Sequence[Duration] = 0.0,
        excuse: bool | Sequence[bool] = False,
    ) -> list[bool]:
        held = _claims(claims)
        per_claim = zip(
            held,
            _per_claim(delay, held, "delay"),
            _per_claim(excuse, held, "excuse"),
            _per_claim(error, held, "error"),
            strict=True,
        )
        items = {
            id(claim): RetryItem(*_fence(claim), duration_ms(d, "delay"), int(flag("excuse", x)), stored_error_text(e))
            for claim, d, x, e in per_claim
        }

        async def send(relay: str, batch: list[Claim]) -> Any:
            return await self._store.retry(relay, [items[id(claim)] for claim in batch], self._durability)

        return await self._settle(held, send)

    async def kill(
        self, claims: Claim | Iterable[Claim], *, reason: Reason | Sequence[Reason] = "", drop: bool = False
    ) -> list[bool]:
        flag("drop", drop)
        held = _claims(claims)
        reasons = {id(claim): stored_error_text(text)
                for claim, text in zip(held, _per_claim(reason, held, "reason"), strict=True)}  # fmt: skip

        async def send(relay: str, batch: list[Claim]) -> Any:
            items = [KillItem(*_fence(claim), reasons[id(claim)]) for claim in batch]
            return await self._store.kill(relay, items, drop=drop, durability=self._durability)

        return await self._settle(held, send)

    async def release(self, claims: Claim | Iterable[Claim], *, delay: Duration | None = None) -> list[bool]:
        wait = None if delay is None else duration_ms(delay, "delay")

        async def send(relay: str, batch: list[Claim]) -> Any:
            seen = [SeenClaim(*_fence(claim)) for claim in batch]
            return await self._store.release(relay, seen, delay=wait, durability=self._durability)

        return await self._settle(claims, send)

    async def reap(self, *, limit: int = 100, delay: Duration = 0.0) -> list[str]:
        self._store.ensure_open()
        whole_number("limit", limit, 1, BATCH_COUNT)
        delay_ms = duration_ms(delay, "delay")
        ids: list[str] = []
        for step in range(0, limit, STEP_COUNT):
            reaped = await self._store.reap(limit=min(limit - step, STEP_COUNT), delay=delay_ms)
            ids += reaped.ids
            if not reaped.more:
                break
        return ids

    async def _settle(self, claims: Claim | Iterable[Claim], send: Send) -> list[bool]:
        """Settles claims in batches of one relay each; returns the results in the order of the claims."""
        self._store.ensure_open()
        held = _claims(claims)
        if len(held) <= BATCH_COUNT and len({claim.claimed_by for claim in held}) == 1:  # a relay settles its own
            return [word == b"OK" for word in await send(held[0].claimed_by, held)]
        results: dict[int, bool] = {}
        by_relay: dict[str, list[tuple[int, Claim]]] = {}
        for position, claim in enumerate(held):
            by_relay.setdefault(claim.claimed_by, []).append((position, claim))
        for relay, mine in by_relay.items():
            for batch in batches(mine, BATCH_COUNT):
                words = await send(relay, [claim for _, claim in batch])
                results.update({position: word == b"OK" for (position, _), word in zip(batch, words, strict=True)})
        return [results[position] for position in range(len(held))]


def check_relay(relay: str) -> None:
    try:
        check_key("relay", relay)
    except InvalidEvent:
        raise UsageError("relay: give this relay a name of 1 to 255 printable characters, such as 'relay-1'") from None


def _fence(claim: Claim) -> tuple[str, int]:
    return claim.event_id, claim.number


def _claims(claims: Claim | Iterable[Claim]) -> list[Claim]:
    held = [claims] if isinstance(claims, Claim) else list(claims or ()) if isinstance(claims, Iterable) else [None]
    if not all(isinstance(claim, Claim) for claim in held):
        raise UsageError("give the claims that box.claim returned; by id, an operator acts with box.operate")
    return held


def _per_claim(value: Any, claims: list[Claim], name: str) -> list[Any]:
    """One value for all claims, or one for each."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        return [value] * len(claims)
    if len(value) != len(claims):
        counts = f"{counted(len(value), 'value')} for {counted(len(claims), 'claim')}"
        raise UsageError(f"{name} {shown(value)}: {counts}; give one, or one for each")
    return list(value)


def _positive_ms(value: Duration, name: str) -> int:
    try:
        milliseconds = duration_ms(value, name)
    except InvalidEvent as error:
        raise UsageError(str(error)) from None
    if milliseconds < 1:
        raise UsageError(f"{name} must be positive, not {shown(value)}")
    return milliseconds
