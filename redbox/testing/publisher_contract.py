"""The contract of every publisher, to be run against its real target.

To test a publisher, write a case: an async context manager that opens the publisher and its target, and yields a
`Case`. Return it from a fixture named `open_case`, and subclass the contract that fits the target:

    @asynccontextmanager
    async def acme_case():
        async with acme_server() as server:
            publisher = AcmePublisher(server.url)
            await publisher.open("orders")
            try:
                yield Case(publisher, arrived=server.read_events, outage=server.stopped)
            finally:
                await publisher.aclose()

    class TestAcme(PublisherContract):
        @pytest.fixture
        def open_case(self):
            return acme_case

| contract | the target |
|---|---|
| `PublisherContract` | delivers events with their headers |
| `PayloadContract` | delivers events, but has no headers of its own |
| `MinimalContract` | keeps nothing that a test could read |

The fixture `open_case` may also be defined in the module, and may be parametrized. Each test of the contract opens a
case of its own, whose target holds no events yet. No pytest plugin for asyncio is needed.

A target of redbox itself is added in `tests/publishers/`: its case in `kinds.py`, its kind in `test_contract.py`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final

import pytest

from redbox.errors import Unavailable, UsageError
from redbox.events import Claim
from redbox.publishers.base import Publisher
from redbox.testing.claims import new_claim

__all__ = ["Arrived", "Case", "MinimalContract", "Opener", "PayloadContract", "PublisherContract", "new_claim"]

TRACE: Final = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

#: What a closed publisher raises: UsageError for a call after `aclose`, Unavailable for events that it was sending.
CLOSED: Final = (UsageError, Unavailable)

PAYLOADS: Final = {
    "json": (b'{"id": 42,  "text":"\xc3\xa9"}', "application/json"),
    "json-lines": (b'{\r\n  "id": 42\n}\n', "application/json"),
    "json-twice-the-name": (b'{"a":1,"a":2.50e1}', "application/vnd.shop+json"),
    "not-json": (b'{"id": ', "application/json"),
    "empty": (b"", "application/octet-stream"),
    "empty-json": (b"", "application/json"),
    "random": (random.Random(7).randbytes(4096), "application/octet-stream"),
    "invalid-utf8": (b"caf\xe9 \xff\x00", "text/plain; charset=utf-8"),
    "text": ("zwei\nZeilen: ü €\r\n".encode(), "text/plain; charset=utf-8"),
    "mebibyte": (random.Random(8).randbytes(2**20), "application/octet-stream"),
}


@dataclass
class Arrived:
    """One event as a consumer reads it; `everything` is all data that the target received for it."""

    event_id: str
    event_type: str
    payload: bytes
    headers: dict[str, str]
    partition_key: str | None
    everything: bytes = b""


@dataclass
class Case:
    """An open publisher, and its target.

    `arrived` returns all events that the target has received so far, the first one first; None if it keeps none.
    `outage` is an async context manager: inside it the target cannot be reached. Without it, the test of outages is
    skipped. `connections` returns how many connections of the publisher are open. `closes` is False for a publisher
    that has nothing to close, such as a function: it may publish after `aclose`.
    """

    publisher: Publisher
    arrived: Callable[[], Awaitable[Sequence[Arrived] | None]]
    outage: Callable[[], AbstractAsyncContextManager[Any]] | None = None
    connections: Callable[[], int] | None = None
    closes: bool = True

    async def events(self) -> Sequence[Arrived]:
        """Returns the events that have arrived, at a target that keeps them."""
        found = await self.arrived()
        assert found is not None, "this target keeps no events: use MinimalContract"
        return found


Opener = Callable[[], AbstractAsyncContextManager[Case]]


class MinimalContract:
    """For every publisher: acknowledgements, concurrent calls, batches, outages, and closing."""

    @pytest.mark.req("PC-1")
    async def test_returning_means_acknowledged(self, redbox_runner, open_case: Opener):
        async with open_case() as case:
            claim = new_claim()
            await case.publisher.publish(claim)
            arrived = await case.arrived()
            assert arrived is None or _ids(arrived) == [claim.event_id]

    @pytest.mark.req("PC-3")
    async def test_two_hundred_concurrent_calls(self, redbox_runner, open_case: Opener):
        claims = [new_claim(b'{"n":%d}' % number, number=number) for number in range(1, 201)]
        async with open_case() as case:
            async with asyncio.timeout(60), asyncio.TaskGroup() as group:
                for claim in claims:
                    group.create_task(case.publisher.publish(claim))
            arrived = await case.arrived()
        if arrived is not None:
            assert {each.event_id: each.payload for each in arrived} == {c.event_id: c.event.payload for c in claims}
            assert len(arrived) == len(claims)

    @pytest.mark.req("PC-3")
    async def test_a_batch_has_an_outcome_for_each_event(self, redbox_runner, open_case: Opener):
        async with open_case() as case:
            claims = [new_claim(number=number) for number in range(1, 1 + min(50, max(3, case.publisher.many)))]
            outcomes = await case.publisher.publish_many(claims)
            assert list(outcomes) == [None] * len(claims)
            arrived = await case.arrived()
            assert arrived is None or _ids(arrived) == _ids(claims)
            assert list(await case.publisher.publish_many([])) == []

    @pytest.mark.req("PC-4", "RF-4")
    async def test_an_outage_is_unavailable_and_ends(self, redbox_runner, open_case: Opener):
        async with asyncio.timeout(100), open_case() as case:
            if case.outage is None:
                pytest.skip("this case has no `outage`")
            await case.publisher.publish(new_claim())
            async with case.outage():
                for _ in range(2):  # a broken connection, then no connection
                    with pytest.raises(Unavailable) as caught:
                        await case.publisher.publish(new_claim())
                    assert str(caught.value), "the operator reads why"
                outcomes = await case.publisher.publish_many([new_claim() for _ in range(3)])
                assert [type(each) for each in outcomes] == [Unavailable] * 3
            after = new_claim()
            await case.publisher.publish(after)
            assert list(await case.publisher.publish_many([new_claim()])) == [None]
            arrived = await case.arrived()
            assert arrived is None or after.event_id in _ids(arrived)

    async def test_closing_is_safe_at_any_time(self, redbox_runner, open_case: Opener):
        async with open_case() as case:
            await case.publisher.aclose()
            await case.publisher.aclose()
            assert case.publisher.target

    async def test_after_closing_it_neither_publishes_nor_connects(self, redbox_runner, open_case: Opener):
        async with asyncio.timeout(30), open_case() as case:
            if not case.closes:
                pytest.skip("this publisher has nothing to close")
            await case.publisher.publish(first := new_claim())
            await case.publisher.aclose()
            with pytest.raises(CLOSED):
                await case.publisher.publish(new_claim())
            assert await _refuses(case.publisher, [new_claim() for _ in range(3)])
            await _no_connections(case)
            arrived = await case.arrived()
            assert arrived is None or _ids(arrived) == [first.event_id]

    @pytest.mark.req("PC-1")
    @pytest.mark.parametrize("connected", [False, True])
    @pytest.mark.parametrize("turns", [0, 2, 10, 40])
    async def test_closing_during_a_call(self, redbox_runner, open_case: Opener, turns: int, connected: bool):
        """The call ends, with an outcome for each event, and no connection is left."""
        claims = [new_claim(number=number) for number in range(1, 21)]
        async with asyncio.timeout(30), open_case() as case:
            if connected:
                await case.publisher.publish(new_claim())
            call = asyncio.ensure_future(case.publisher.publish_many(claims))
            for _ in range(turns):
                await asyncio.sleep(0)
            await case.publisher.aclose()
            try:
                outcomes = await call
            except CLOSED:
                outcomes = [Unavailable()] * len(claims)
            await _no_connections(case)
            arrived = await case.arrived()
        assert len(outcomes) == len(claims)
        assert all(each is None or isinstance(each, CLOSED) for each in outcomes)
        if arrived is not None:
            published = [claim for claim, outcome in zip(claims, outcomes, strict=True) if outcome is None]
            assert set(_ids(published)) <= set(_ids(arrived))


class PayloadContract(MinimalContract):
    """For a target whose events can be read: also their contents, and calls that are cancelled."""

    @pytest.mark.req("PC-2", "EM-3")
    @pytest.mark.parametrize("payload", PAYLOADS)
    async def test_the_payload_arrives_byte_for_byte(self, redbox_runner, open_case: Opener, payload: str):
        data, content_type = PAYLOADS[payload]
        async with open_case() as case:
            await case.publisher.publish(new_claim(data, content_type=content_type))
            (arrived,) = await case.events()
            assert arrived.payload == data

    @pytest.mark.req("PC-2")
    async def test_id_type_and_partition_key_arrive(self, redbox_runner, open_case: Opener):
        async with open_case() as case:
            claim = new_claim(event_id='a"b%20~', event_type="größe.geändert", partition_key='key "7" 100% ü')
            await case.publisher.publish(claim)
            await case.publisher.publish(other := new_claim())
            arrived = {each.event_id: (each.event_type, each.partition_key) for each in await case.events()}
            assert arrived == {
                'a"b%20~': ("größe.geändert", 'key "7" 100% ü'),
                other.event_id: (other.event.event_type, None),
            }

    @pytest.mark.req("PC-3")
    async def test_a_cancelled_publish_does_not_affect_others(self, redbox_runner, open_case: Opener):
        """Cancels after 0, 1, 2, ... turns of the event loop, until a publish completes before it is cancelled."""
        async with asyncio.timeout(100), open_case() as case:
            for turns in range(1000):
                ended = await cancelled_after(turns, case.publisher.publish(new_claim()))
                after = new_claim()
                await _publish_soon(case.publisher, after)
                assert after.event_id in _ids(await case.events())
                if ended:
                    break
            assert ended

    @pytest.mark.req("PC-3")
    async def test_a_cancelled_batch_does_not_affect_others(self, redbox_runner, open_case: Opener):
        """The outcomes of a later batch are its own: an event that the target cannot have received has none."""
        async with asyncio.timeout(100), open_case() as case:
            for turns in range(1000):
                batch = [new_claim(number=number) for number in range(1, 4)]
                ended = await cancelled_after(turns, case.publisher.publish_many(batch))
                await _publish_soon(case.publisher, new_claim())
                later = [new_claim(number=number) for number in range(4, 7)]
                outcomes = await case.publisher.publish_many(later)
                assert list(outcomes) == [None] * 3
                assert set(_ids(later)) <= set(_ids(await case.events()))
                if ended:
                    break
            assert ended


class PublisherContract(PayloadContract):
    """For a target that delivers events with their headers: the whole contract."""

    @pytest.mark.req("PC-2", "EM-9")
    async def test_headers_arrive_unchanged(self, redbox_runner, open_case: Opener):
        headers = {
            "X-Tenant": "a, b;  c",
            "x-text": "日本 é\t\x80",
            "X_dots.and~more": "1",
            "Accept": "text/x",
            "empty": "",
        }
        async with open_case() as case:
            await case.publisher.publish(new_claim(headers=headers, number=31, attempts=4))
            (arrived,) = await case.events()
            assert {name: arrived.headers.get(name) for name in headers} == headers
            assert (arrived.headers["redbox-claim"], arrived.headers["redbox-attempt"]) == ("31", "4")
            assert "traceparent" not in arrived.headers

    @pytest.mark.req("EM-8", "EM-9")
    async def test_metadata_is_not_delivered_except_the_trace(self, redbox_runner, open_case: Opener):
        metadata = {"traceparent": TRACE, "tracestate": "hidden-state", "hidden-name": "hidden-value"}
        async with open_case() as case:
            await case.publisher.publish(new_claim(metadata=metadata, unique_key="hidden-key"))
            await case.publisher.publish(new_claim(metadata=metadata, headers={"Traceparent": "own"}))
            first, second = await case.events()
            assert b"hidden" not in first.everything + second.everything
            assert first.headers["traceparent"] == TRACE
            assert second.headers["Traceparent"] == "own"
            assert TRACE.encode() not in second.everything

    @pytest.mark.req("EM-8")
    async def test_a_malformed_trace_is_not_delivered(self, redbox_runner, open_case: Opener):
        """`put` accepts any metadata; invalid metadata must not prevent the delivery."""
        async with open_case() as case:
            await case.publisher.publish(new_claim(metadata={"traceparent": f"{TRACE}\r\nx-forged: 1"}))
            (arrived,) = await case.events()
            assert "traceparent" not in arrived.headers
            assert b"forged" not in arrived.everything


def _ids(found: Iterable[Arrived | Claim]) -> list[str]:
    return [each.event_id for each in found]


async def _refuses(publisher: Publisher, claims: Sequence[Claim]) -> bool:
    """Whether a batch is refused: as a whole, or each event."""
    try:
        outcomes = await publisher.publish_many(claims)
    except CLOSED:
        return True
    return all(isinstance(each, CLOSED) for each in outcomes)


async def _no_connections(case: Case) -> None:
    """Waits until the target has noticed the end of each connection."""
    async with asyncio.timeout(5):
        while case.connections is not None and case.connections():  # noqa: ASYNC110  # the target may have no event for it
            await asyncio.sleep(0.005)


async def cancelled_after(turns: int, call: Coroutine[Any, Any, Any]) -> bool:
    """Cancels a call after some turns of the event loop. Returns whether it had ended before."""
    task = asyncio.ensure_future(call)
    for _ in range(turns):
        await asyncio.sleep(0)
    ended = task.done()
    task.cancel()
    await asyncio.wait([task])
    return ended


async def _publish_soon(publisher: Publisher, claim: Claim) -> None:
    """Publishes, and waits for a cancelled write that may still be running."""
    while True:
        try:
            return await publisher.publish(claim)
        except Unavailable as error:
            if "an earlier write" not in str(error):
                raise
            await asyncio.sleep(0)
