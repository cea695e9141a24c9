"""Hashes and bodies are not read in one step: what is removed in between is gone, not damaged."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import pytest

from redbox import Event
from redbox.errors import StreamLost
from redbox.pipeline.source.connection import Connection, connected
from redbox.pipeline.source.fetch import Fetch
from redbox.pipeline.source.options import Address
from redbox.pipeline.source.rows import BatchBuilder, FetchedEvent
from redbox.pipeline.source.schema import schema_of
from redbox.store.scripts.items import SeenClaim
from redbox.store.scripts.replies import Fence
from redbox.testing.conformance.steps import publish
from redbox.testing.conformance.test_rules import write_directly

from .conftest import Played

pytestmark = pytest.mark.req("SP-1")

BUILDER = BatchBuilder(schema_of(["event_id", "payload", "problem"]))
LATER = 2**62


@pytest.fixture
def connection(redis_played: Played) -> Iterator[Connection]:
    with connected(Address(redis_played.url, redis_played.name)) as made:
        yield made


def before_bodies(connection: Connection, monkeypatch: pytest.MonkeyPatch, step: Callable[[], Awaitable[Any]]) -> None:
    """Takes a step once, when hashes are read and their bodies are not."""
    real, steps = connection.store.exchange, [step]

    async def exchange(commands: Sequence[Any], **options: Any) -> list[Any]:
        *hashes, bodies = commands
        replies = await real(hashes, **options)
        if steps:
            await steps.pop()()
        return [*replies, *await real([bodies], **options)]

    monkeypatch.setattr(connection.store, "exchange", exchange)


def ids(read: Iterator[list[FetchedEvent]]) -> list[str]:
    events = [event for part in read for event in part]
    assert all(event.body for event in events)
    return [event.event_id for event in events]


def claim(played: Played) -> list[Fence]:
    played.run(played.box.put_many([Event("n", event_id=each) for each in ("a", "b", "c")]))
    return [(each.event_id, each.number) for each in played.run(played.box.claim("relay-1"))]


def test_what_is_dropped_before_its_body_is_read_is_gone(
    redis_played: Played, connection: Connection, monkeypatch: pytest.MonkeyPatch
):
    redis_played.run(publish(redis_played.box, *[Event("n", event_id=each) for each in ("a", "b", "c")]))
    before_bodies(connection, monkeypatch, lambda: connection.store.drop([SeenClaim("b")], who="test", why="test"))
    assert ids(Fetch(connection, LATER).unchanged("published", ["a", "b", "c"], BUILDER)) == ["a", "c"]


def test_what_is_acknowledged_and_not_kept_before_its_body_is_read_is_gone(
    redis_played: Played, connection: Connection, monkeypatch: pytest.MonkeyPatch
):
    claims = claim(redis_played)
    before_bodies(connection, monkeypatch, lambda: connection.store.ack("relay-1", True, claims[:1]))
    assert ids(Fetch(connection, LATER, LATER).unchanged("claimed", ["a", "b", "c"], BUILDER)) == ["b", "c"]


@pytest.mark.req("SP-3")
@pytest.mark.parametrize("strict", [True, False])
def test_a_stream_has_lost_what_is_removed_before_its_body_is_read(
    redis_played: Played, connection: Connection, monkeypatch: pytest.MonkeyPatch, strict: bool
):
    claims = claim(redis_played)
    before_bodies(connection, monkeypatch, lambda: connection.store.ack("relay-1", True, claims[:1]))
    read = Fetch(connection).held(claims, BUILDER, strict=strict)
    if strict:
        with pytest.raises(StreamLost, match="such as a;"):
            list(read)
    else:
        assert ids(read) == ["b", "c"]


def test_what_is_put_behind_the_look_at_its_hash_is_not_there_yet(
    redis_played: Played, connection: Connection, monkeypatch: pytest.MonkeyPatch
):
    redis_played.run(redis_played.box.put(Event("n", event_id="a")))
    real = connection.run

    def run(ask: Callable[..., Awaitable[Any]], *arguments: Any, **options: Any) -> Any:
        if ask == connection.store.read_states:
            redis_played.run(redis_played.box.put(Event("n", event_id="b")))
        return real(ask, *arguments, **options)

    monkeypatch.setattr(connection, "run", run)
    assert ids(Fetch(connection).wherever(["a", "b"], BUILDER)) == ["a"]


def test_what_has_no_body_at_a_second_look_is_damaged(redis_played: Played, connection: Connection):
    redis_played.run(publish(redis_played.box, Event("n", event_id="a"), Event("n", event_id="b")))
    redis_played.run(write_directly(redis_played.box, "DEL", ":b:b"))
    ((good, bad),) = Fetch(connection, LATER).unchanged("published", ["a", "b"], BUILDER)
    assert good.body
    assert (bad.event_id, bad.body) == ("b", None)
    told = BUILDER.build("published", LATER, [good, bad]).column("problem").to_pylist()
    assert told[0] is None
    assert told[1] == "event b cannot be read: its stored body is missing"
