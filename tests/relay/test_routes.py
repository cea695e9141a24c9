"""Boxes as targets, and routes to several boxes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from redbox import (
    Box,
    Claim,
    Event,
    InvalidURL,
    Publish,
    Reject,
    Relay,
    RetryLater,
    Routes,
    State,
    Unavailable,
    UniqueScope,
    UsageError,
    open_publisher,
)
from redbox.box.beside import beside
from redbox.relay.outcomes.breaker import Circuit
from redbox.routing import destination
from redbox.routing.destination import HOPS, MOST_HOPS, SOURCE, copy_of
from redbox.routing.routes import PartlyPublished
from redbox.store.codec import decode_body
from redbox.telemetry import publishing
from redbox.testing import check_invariants
from redbox.testing.claims import new_claim
from redbox.testing.plugin import new_box_name
from tests import servers
from tests.relay.steps import drained, known, put, running, states, until

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@asynccontextmanager
async def boxes(*names: str, url: str = "memory:") -> AsyncIterator[list[Box]]:
    """Boxes of one store."""
    async with Box.open(url, name=names[0]) as first:
        yield [first, *(beside(first, name) for name in names[1:])]


async def limit(box: Box, most: int) -> None:
    await box.operate.configure(max_pending=most, who="me", why="test")


async def due_now(box: Box, event_id: str) -> None:
    await box.operate.reschedule([event_id], delay=0, who="me", why="test")


async def ids(box: Box) -> list[str]:
    assert await check_invariants(box) == []
    return sorted([record.event_id async for record in box.list()])


# --- one box ---------------------------------------------------------------------------------------------------


@pytest.mark.req("RT-1")
async def test_a_copy_keeps_everything_and_names_its_source(redbox_runner, redis_url: str):
    async with boxes("full-orders", "full-billing", url=redis_url) as (orders, billing):
        event = Event(
            "order.paid", b"\x00\xff", event_id="e0", headers={"x-b": "2", "X-A": "ü"}, partition_key="p",
            ordering_key="o", unique_key="u", unique_scope=UniqueScope.UNTOUCHED, content_type="image/x",
            metadata={"traceparent": TRACE, "mine": "1"}, delay=timedelta(milliseconds=1),
        )  # fmt: skip
        await orders.put(event)
        await until(lambda: orders.count(phase="AVAILABLE", state="PENDING"), "the event was not due")
        assert (await drained(Relay(orders, "box:full-billing"))).published == 1
        copy = (await known(billing)).event
        kept = ("event_type", "payload", "event_id", "partition_key", "ordering_key", "unique_key", "unique_scope")
        assert [getattr(copy, name) for name in kept] == [getattr(event, name) for name in kept]
        assert (copy.content_type, dict(copy.headers)) == ("image/x", {"x-b": "2", "X-A": "ü"})
        assert copy.metadata == {"traceparent": TRACE, "mine": "1", SOURCE: "full-orders", HOPS: "1"}
        assert await states(billing) == {State.PENDING: 1}
        assert (await known(billing)).created_at >= (await known(orders)).created_at


@pytest.mark.req("RT-1", "EM-8")
async def test_a_copy_continues_the_trace(redbox_runner):
    """With OpenTelemetry, the span of the publish is the parent of what happens to the copy."""
    span = f"{TRACE[:36]}00f067aa0ba902b7-01"
    claim = new_claim(metadata={"traceparent": TRACE, "mine": "1"})
    token = publishing.set({claim.event_id: span})
    try:
        _, encoded = copy_of(claim, "orders")
    finally:
        publishing.reset(token)
    assert decode_body(claim.event_id, encoded.body).metadata == {
        "traceparent": span, "mine": "1", SOURCE: "orders", HOPS: "1",
    }  # fmt: skip


@pytest.mark.req("RT-1")
async def test_an_event_that_is_there_already_is_published(redbox_runner):
    """As after a crash between the put and the ack. Its metadata may differ: it is not content."""
    async with boxes("orders", "billing") as (orders, billing):
        await put(orders, 3)
        await billing.put(Event("n", 1, event_id="e1"))
        assert (await drained(Relay(orders, "box:billing"))).published == 3
        assert await ids(billing) == ["e0", "e1", "e2"]


@pytest.mark.req("RT-1")
async def test_another_event_with_the_same_id_is_not_swallowed(redbox_runner):
    async with boxes("orders", "billing") as (orders, billing):
        await put(orders, 3)
        await billing.put(Event("n", "another", event_id="e1"))
        summary = await drained(Relay(orders, "box:billing"))
        assert (summary.published, summary.dead) == (2, 1)
        assert "box:billing: event_id e1 already belongs to an event with a different payload" in str(
            (await known(orders, "e1")).last_error
        )
        assert (await known(billing, "e1")).event.decode() == "another"


@pytest.mark.req("RT-1")
async def test_a_unique_key_that_is_held_there_makes_the_event_wait(redbox_runner):
    """The first event is live in the destination longer than in the source. No attempt counts, so none is lost."""
    async with boxes("orders", "billing") as (orders, billing):
        relay = Relay(orders, "box:billing", attempts=1)
        for name in ("e0", "e1"):
            await orders.put(Event("n", event_id=name, unique_key="u"))
            await drained(relay)
        waiting = await known(orders, "e1")
        assert (waiting.state, waiting.attempts, waiting.excused) == (State.PENDING, 1, 1)
        assert "box:billing: event e1 was not put: unique_key 'u' is held by event e0" in str(waiting.last_error)
        assert await ids(billing) == ["e0"]
        await drained(Relay(billing, "null:"))
        await due_now(orders, "e1")
        await drained(relay)
        assert await ids(billing) == ["e0", "e1"]


@pytest.mark.req("RT-1", "RT-3")
@pytest.mark.parametrize("breaker", ["default", None])
async def test_a_full_box_makes_the_source_wait(redbox_runner, breaker: Any):
    async with boxes("orders", "billing") as (orders, billing):
        await put(orders, 30)
        await limit(billing, 10)
        relay = Relay(orders, "box:billing", attempts=1, breaker=breaker)
        summary = await drained(relay)
        assert (summary.published, summary.dead) == (10, 0)
        assert len(await ids(billing)) == 10
        await limit(billing, 0)
        async for record in orders.list(state="PENDING"):
            assert record.attempts == record.excused
            await due_now(orders, record.event_id)
        await drained(Relay(orders, "box:billing"))
        assert len(await ids(billing)) == 30


@pytest.mark.req("RT-1")
async def test_a_paused_box_accepts_copies(redbox_runner):
    async with boxes("orders", "billing") as (orders, billing):
        await put(orders, 2)
        await billing.operate.pause(who="me", why="test")
        assert (await drained(Relay(orders, "box:billing"))).published == 2


@pytest.mark.req("RT-1")
async def test_another_server(redbox_runner, redis_url: str):
    """While it is down, events wait in the source; then they arrive."""
    with servers.redis_server() as other:
        async with Box.open(redis_url, name="remote-orders") as orders:
            await put(orders, 20, ordering_key="k")
            relay = Relay(orders, f"box+{other.url}/billing", attempts=1)
            assert relay.target == f"box+{other.url}/billing"
            other.stop()
            summary = await drained(relay)
            assert (summary.published, summary.dead) == (0, 0)
            other.start()
            async with running(relay), Box.open(other.url, name="billing") as billing:
                await until(lambda: _has(billing, 20), "not all arrived")
                for number in range(20):
                    (claim,) = await billing.claim("consumer")
                    assert claim.event.decode() == number
                    await billing.ack([claim])


async def _has(box: Box, count: int) -> bool:
    return await box.count() == count


@pytest.mark.req("RT-1")
async def test_a_box_is_not_its_own_target(redbox_runner, redis_url: str):
    async with Box.open(redis_url, name="own") as box:
        for argument in ({"publish": "box:own"}, {"publish": "null:", "dead_to": "box:own"}):
            with pytest.raises(UsageError, match="box own cannot be the target of its own relay"):
                Relay(box, **argument)
        with pytest.raises(UsageError, match="box own cannot be the target of its own relay"):
            Relay(box, Routes({"*": "box:own"}))
        with pytest.raises(UsageError, match="box own cannot be the target of its own relay"):
            await drained(Relay(box, f"box+{redis_url}/own"))


@pytest.mark.req("RT-1")
async def test_a_box_under_another_name_of_its_server_is_not_its_own_target(redbox_runner, redis_url: str):
    """The put would find the event itself, and the event would count as published."""
    async with Box.open(redis_url, name="alias") as box:
        await put(box, 3)
        summary = await drained(Relay(box, f"box+{redis_url.replace('127.0.0.1', 'localhost')}/alias"))
        assert (summary.published, summary.dead) == (0, 0)
        assert await states(box) == {State.PENDING: 3}
        assert "is the box of this relay" in str((await known(box)).last_error)


@pytest.mark.req("RT-1")
async def test_a_mirror_has_the_same_name_on_another_server(redbox_runner, redis_url: str):
    with servers.redis_server() as other:
        async with Box.open(redis_url, name="mirror") as box, Box.open(other.url, name="mirror") as mirror:
            await put(box, 3)
            await put(mirror, 2)
            assert (await drained(Relay(box, f"box+{other.url}/mirror"))).published == 3
            assert await ids(mirror) == ["e0", "e1", "e2"]


@pytest.mark.req("RT-1")
async def test_a_cycle_of_boxes_that_keep_nothing_ends(redbox_runner):
    async with boxes("a", "b") as (a, b):
        await put(a, 1)
        for _ in range(MOST_HOPS):
            await drained(Relay(a, "box:b", on_success="delete"))
            await drained(Relay(b, "box:a", on_success="delete"))
        assert await states(a) == {State.DEAD: 1}
        assert "16 times already: do the routes form a cycle?" in str((await known(a)).last_error)


async def test_dead_letters_in_a_box(redbox_runner):
    """Why it is dead is metadata there; each life of the event has a letter of its own."""
    async with boxes("orders", "graveyard") as (orders, graveyard):
        await put(orders, 1)
        for reason in ("first", "second"):

            async def publish(event: Event, reason: str = reason) -> None:
                raise ValueError(reason)

            await drained(Relay(orders, publish, dead_to="box:graveyard", attempts=1))
            assert await states(orders) == {State.DEAD: 1}
            await orders.replay(["e0"])
        reasons = ("ValueError: first", "ValueError: second")
        assert await letters(graveyard) == [("e0", "orders", reason) for reason in reasons]
        assert [dict(record.event.headers) async for record in graveyard.list()] == [{}, {}]


def test_urls_of_boxes():
    for url in ("box:", "box:a b", "box:a/b", "box://a", "box+redis://h/0", "box+redis://h/0/", "box+redis://h/x/b"):
        with pytest.raises(InvalidURL):
            open_publisher(url)
    publisher = open_publisher("box+redis://me:hush@h:1/2/b?socket_timeout=3&password=hush")
    assert publisher.target == "box+redis://***@h:1/2/b?socket_timeout=3&password=***"
    with pytest.raises(UsageError, match="durability 'never'"):
        open_publisher("box:b", durability="never")


async def test_without_a_relay_a_box_has_no_server(redbox_runner):
    publisher = open_publisher("box:billing")
    await publisher.open("orders")
    with pytest.raises(UsageError, match="there is no relay: give it to one as its target, or name the server"):
        await publisher.publish(new_claim())


# --- routes ----------------------------------------------------------------------------------------------------

ROUTES = {"order.*": ["box:billing", "box:search"], "*.paid": "box:billing", "mail.?": ["box:mail"]}


@pytest.mark.req("RT-2")
async def test_an_event_goes_to_every_destination_that_matches_once(redbox_runner):
    async with boxes("orders", "billing", "search", "mail", "rest") as (orders, billing, search, mail, rest):
        types = ("order.paid", "order.new", "bill.paid", "mail.1", "mail.12", "Order.new")
        await orders.put_many([Event(name, event_id=f"e{at}") for at, name in enumerate(types)])
        summary = await drained(Relay(orders, Routes(ROUTES)))
        assert (summary.published, summary.dead) == (4, 2)
        assert [await ids(box) for box in (billing, search, mail)] == [["e0", "e1", "e2"], ["e0", "e1"], ["e3"]]
        assert {(await known(orders, name)).last_error for name in ("e4", "e5")} == {"no route"}
        await orders.replay(state="DEAD")
        await orders.put(Event("mail.2", event_id="e6"))
        await drained(Relay(orders, Routes(ROUTES, default="box:rest")))
        assert await ids(mail) == ["e3", "e6"]
        assert await ids(rest) == ["e4", "e5"]
        assert {record.event.metadata[SOURCE] async for record in rest.list()} == {"orders"}


@pytest.mark.req("RT-2")
async def test_the_table_changes_while_events_are_queued(redbox_runner):
    """Queued events go by the table of the relay that claims them; what a destination has, it keeps."""
    async with boxes("orders", "billing", "search") as (orders, billing, search):
        await limit(search, 1)
        await put(orders, 3)
        await drained(Relay(orders, Routes({"*": ["box:billing", "box:search"]})))
        assert (len(await ids(billing)), len(await ids(search))) == (3, 1)
        for name in ("e0", "e1", "e2"):
            await due_now(orders, name) if (await known(orders, name)).state == "PENDING" else None
        await drained(Relay(orders, Routes({"*": "box:billing"})))
        assert await states(orders) == {State.PUBLISHED: 3}
        assert (len(await ids(billing)), len(await ids(search))) == (3, 1)


@pytest.mark.req("RT-3")
async def test_a_full_destination_does_not_hold_up_another(redbox_runner, monkeypatch: pytest.MonkeyPatch):
    """Every event matches both. The breaker stays closed as long as one destination takes new events."""
    monkeypatch.setattr(destination, "growing_delay", lambda attempts: 600.0)  # so that the drain makes no retries
    async with boxes("orders", "billing", "search") as (orders, billing, search):
        await limit(search, 1)
        await put(orders, 500)
        relay = Relay(orders, Routes({"*": ["box:billing", "box:search"]}), attempts=1)
        summary = await drained(relay)
        assert (len(await ids(billing)), len(await ids(search))) == (500, 1)
        assert (summary.published, summary.dead, relay.circuit) == (1, 0, Circuit.CLOSED)
        assert relay.breaker is not None
        assert relay.breaker.opened == 0
        record = next(iter([each async for each in orders.list(state="PENDING", limit=1)]))
        assert (record.attempts, record.excused) == (1, 1)
        assert "box:search: box 'search' holds max_pending (1) events already" in str(record.last_error)


@pytest.mark.req("RT-3")
async def test_a_destination_that_has_an_event_is_not_sent_it_again(redbox_runner):
    async with boxes("orders", "billing", "search") as (orders, billing, search):
        await limit(search, 1)
        await search.put(Event("n"))
        routes = Routes({"*": ["box:billing", "box:search"]})
        routes.attach(orders)
        await routes.open("orders")
        claim = new_claim()
        with pytest.raises(PartlyPublished):
            await routes.publish(claim)
        for _ in range(2):
            with pytest.raises(Unavailable, match=r"box:search: .* holds max_pending"):
                await routes.publish(claim)
        totals = (await billing.stats()).totals
        assert (totals["put"], totals.get("repeated", 0)) == (1, 0)
        replayed = msgspec.structs.replace(claim, due_ms=claim.due_ms + 1)
        with pytest.raises(Unavailable):
            await routes.publish(replayed)
        assert (await billing.stats()).totals["repeated"] == 1


@pytest.mark.req("RT-3")
async def test_a_destination_that_lost_the_event_with_its_server_is_sent_it_again(redbox_runner):
    with servers.redis_server(save="", appendonly="no") as server:
        async with boxes("orders", "billing", "search", url=server.url) as (orders, billing, search):
            await limit(search, 1)
            await search.put(Event("n"))
            routes = Routes({"*": ["box:billing", "box:search"]})
            routes.attach(orders)
            await routes.open("orders")
            claim = new_claim()
            with pytest.raises(PartlyPublished):
                await routes.publish(claim)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.restart)
            # Whether the lost connection is noticed before the first of these, or by it, is up to the event loop.
            with suppress(RetryLater):
                await routes.publish(claim)
            await routes.publish(claim)
            assert await ids(billing) == await ids(search) == [claim.event_id]


@pytest.mark.req("RT-3")
async def test_an_event_is_not_settled_if_the_connection_is_lost_while_the_rest_is_put(redbox_runner, monkeypatch):
    async with boxes("orders", "billing", "search") as (orders, billing, search):
        await limit(search, 1)
        await search.put(Event("n"))
        routes = Routes({"*": ["box:billing", "box:search"]})
        routes.attach(orders)
        await routes.open("orders")
        claim = new_claim()
        with pytest.raises(PartlyPublished):
            await routes.publish(claim)
        await limit(search, 2)
        losses = itertools.count()
        monkeypatch.setattr("redbox.routing.routes.connection_losses", lambda _: next(losses))
        with pytest.raises(RetryLater, match="the connection was lost") as caught:
            await routes.publish(claim)
        assert caught.value.excuse
        monkeypatch.undo()
        await routes.publish(claim)
        assert (await billing.stats()).totals["repeated"] == 1


@pytest.mark.req("RT-3")
async def test_an_event_that_one_destination_refuses_is_dead_after_the_others_have_it(redbox_runner):
    async with boxes("orders", "billing", "search", "mail") as (orders, billing, search, mail):
        await billing.put(Event("n", "another", event_id="e0"))
        await limit(mail, 1)
        await mail.put(Event("n"))
        await put(orders, 1)
        relay = Relay(orders, Routes({"*": ["box:billing", "box:search", "box:mail"]}))
        await drained(relay)
        assert (await known(orders)).state == State.PENDING
        assert await ids(search) == ["e0"]
        await limit(mail, 0)
        await due_now(orders, "e0")
        await drained(relay)
        assert (await known(orders)).state == State.DEAD
        assert "box:billing: event_id e0 already belongs" in str((await known(orders)).last_error)
        assert "e0" in await ids(mail)


@pytest.mark.req("RT-3")
async def test_order_holds_from_box_to_box(redbox_runner, redis_url: str):
    got: list[tuple[str, int]] = []

    async def publish(event: Event) -> None:
        await asyncio.sleep(0)
        got.append((str(event.ordering_key), event.decode()))

    async with boxes("line-orders", "line-billing", url=redis_url) as (orders, billing):
        await orders.put_many([Event("n", n, ordering_key=f"k{n % 7}") for n in range(700)])
        relays = [Relay(orders, Routes({"*": "box:line-billing"})) for _ in range(2)]
        async with running(*relays, Relay(billing, publish)):
            await until(lambda: len(got) == 700, "not all events arrived")
        for key in range(7):
            assert [n for name, n in got if name == f"k{key}"] == list(range(key, 700, 7))


@pytest.mark.req("RT-2")
async def test_routes_on_a_cluster(redbox_runner, cluster_url: str):
    """The boxes are on different nodes."""
    async with boxes(*(f"node-{n}" for n in range(6)), url=cluster_url) as (orders, *others):
        await put(orders, 50, ordering_key="k")
        await drained(Relay(orders, Routes({"*": [f"box:{box.name}" for box in others]})))
        for box in others:
            assert len(await ids(box)) == 50


@pytest.mark.parametrize(
    ("routes", "said"),
    [
        ({}, "routes are a mapping of patterns to boxes"),
        ([("a", "box:b")], "routes are a mapping of patterns to boxes"),
        ({"a": "https://h/"}, r"routes\['a'\]: a route leads to boxes such as box:billing, so that a target that is"),
        ({"a": ["box:b", "box+redis://h/0/b"]}, r"a route leads to boxes of the same server, so that a server that"),
        ({"a": []}, r"routes\['a'\]: names no box"),
        ({"a": None}, r"routes\['a'\]: must be a box such as 'box:billing', or a list of them, not None"),
        ({"a": [1]}, r"routes\['a'\] must be a string, not 1"),
        ({"": "box:b"}, "a pattern of routes: must not be empty"),
        ({"*" * 40: "box:b"}, "a pattern of routes: takes at most 32 wildcards"),
    ],
)
def test_invalid_routes_are_refused(routes: Any, said: str):
    with pytest.raises(UsageError, match=said):
        Routes(routes)


def test_the_target_of_routes_in_words():
    assert Routes(ROUTES, default=["box:rest"]).target == "box:billing, box:search, box:mail, box:rest"


@pytest.mark.req("RT-1")
async def test_a_publisher_belongs_to_one_relay(redbox_runner, redis_url: str):
    """Else the events of one would go to the server of the other."""
    async with Box.open(redis_url, name="one") as one, Box.open(redis_url, name="two") as two:
        routes = Routes({"*": "box:there"})
        Relay(one, routes)
        with pytest.raises(UsageError, match="the target of another relay"):
            Relay(two, routes)


@pytest.mark.req("RT-1")
async def test_a_repeat_with_other_headers_finds_its_copy(redbox_runner, redis_url: str):
    """A middleware may add another header to each attempt."""
    attempts = itertools.count()

    async def stamp(claim: Claim, publish: Publish) -> None:
        await publish(claim.with_headers({"x-request-id": str(next(attempts))}))

    async with Box.open(redis_url, name=new_box_name()) as source:
        name = new_box_name()
        (receipt,) = await source.put_many([Event("order.paid")])
        await drained(Relay(source, f"box:{name}", middleware=[stamp]))
        await source.replay([receipt.event_id])
        summary = await drained(Relay(source, f"box:{name}", middleware=[stamp]))
        assert (summary.published, summary.dead) == (1, 0)


@pytest.mark.req("RT-1")
async def test_another_event_with_the_same_id_is_not_taken_for_the_copy(redbox_runner):
    async with boxes(new_box_name(), new_box_name()) as (orders, billing):
        await billing.put(Event("a", b"x", event_id="e0", headers={"tenant": "other"}))
        await orders.put(Event("a", b"x", event_id="e0", headers={"tenant": "acme"}))
        assert (await drained(Relay(orders, f"box:{billing.name}", breaker=None))).dead == 1
        assert "headers" in str((await known(orders)).last_error)


# --- a box for dead letters ------------------------------------------------------------------------------------


async def letters(box: Box) -> list[tuple[str, str, str]]:
    """Of each dead letter: the event, the box it comes from, and the reason."""
    names = ("redbox-dead-event", SOURCE, "redbox-dead-reason")
    found = [tuple(record.event.metadata[name] for name in names) async for record in box.list()]
    assert await check_invariants(box) == []
    return sorted(found)  # type: ignore[arg-type]


def rejecting(reason: str) -> Publish:
    async def publish(event: Event) -> None:
        raise Reject(reason)

    return publish


@pytest.mark.req("RT-3", "RF-3")
async def test_two_destinations_share_a_box_for_dead_letters(redbox_runner):
    names = [new_box_name() for _ in range(4)]
    async with boxes(*names) as (orders, billing, search, dead):
        await put(orders, 2)
        await drained(Relay(orders, Routes({"*": [f"box:{billing.name}", f"box:{search.name}"]})))
        for each in (billing, search):
            relay = Relay(each, rejecting(f"{each.name} says no"), dead_to=f"box:{dead.name}", on_dead="drop")
            assert (await drained(relay)).dead == 2
        expected = [(event, box.name, f"{box.name} says no") for event in ("e0", "e1") for box in (billing, search)]
        assert await letters(dead) == sorted(expected)


@pytest.mark.req("RT-1", "RF-3")
async def test_an_event_that_is_dead_again_has_a_second_letter(redbox_runner):
    async with boxes(new_box_name(), new_box_name()) as (billing, dead):
        await billing.put(Event("a", event_id="e0", unique_key="u"))
        for _ in range(2):
            assert (await drained(Relay(billing, rejecting("no"), dead_to=f"box:{dead.name}"))).dead == 1
            await billing.replay(state="DEAD", who="me", why="test")
        assert await letters(dead) == [("e0", billing.name, "no")] * 2


@pytest.mark.req("RT-1", "RF-3")
async def test_a_dead_letter_can_be_sent_back(redbox_runner):
    async with boxes(new_box_name(), new_box_name()) as (billing, dead):
        await put(billing, 1)
        assert (await drained(Relay(billing, rejecting("no"), dead_to=f"box:{dead.name}"))).dead == 1
        assert (await drained(Relay(dead, f"box:{billing.name}"))).published == 1
        taken: list[Event] = []
        assert (await drained(Relay(billing, taken.append))).published == 1
        assert taken[0].metadata["redbox-dead-event"] == "e0"


@pytest.mark.req("RT-1", "PL-7")
async def test_a_repeated_dead_letter_is_one(redbox_runner):
    claim = new_claim(b"x", event_id="e" * 128)
    letter = claim.with_headers({})
    headers = {**letter.event.headers, "redbox-dead-reason": "no"}
    letter = msgspec.structs.replace(letter, event=msgspec.structs.replace(letter.event, headers=headers))
    again = msgspec.structs.replace(letter, number=letter.number + 1, attempts=2)
    first, second = copy_of(letter, "orders")[0], copy_of(again, "orders")[0]
    assert first.event_id == second.event_id != claim.event_id
    assert len(first.event_id) <= 128
    assert copy_of(letter, "billing")[0].event_id != first.event_id
