"""redis+stream:// against a real server, and against servers that refuse."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import pytest
import redis.asyncio

from redbox.errors import InvalidURL, NotPublished, Reject, Unavailable, UsageError
from redbox.publishers.registry import open_publisher
from redbox.testing.claims import CREATED_MS, new_claim
from tests import servers
from tests.proxy import proxy, refusing_server
from tests.publishers.conftest import opened


def stream_url(url: str, stream: str = "shop") -> str:
    return f"{url.replace('://', '+stream://')}/{stream}"


@pytest.mark.req("PC-1", "PC-2")
async def test_the_fields_of_an_entry(redbox_runner, redis_url: str):
    claim = new_claim(b"\x00\xff", content_type="image/png", partition_key="p", ordering_key="o", headers={"X-A": "é"})
    async with redis.asyncio.Redis.from_url(redis_url) as client, opened(stream_url(redis_url, "fields")) as publisher:
        await publisher.publish(claim)
        ((_, fields),) = await client.xrange("fields")
    assert fields == {
        b"event_id": claim.event_id.encode(),
        b"event_type": b"user.created",
        b"content_type": b"image/png",
        b"created_at": str(CREATED_MS).encode(),
        b"partition_key": b"p",
        b"ordering_key": b"o",
        b"header:X-A": "é".encode(),
        b"header:redbox-claim": b"7",
        b"header:redbox-attempt": b"2",
        b"header:redbox-ordering-key": b"o",
        b"payload": b"\x00\xff",
    }


@pytest.mark.parametrize("by_option", [False, True])
async def test_maxlen_trims(redbox_runner, redis_url: str, by_option: bool):
    url, options = stream_url(redis_url, f"trimmed{by_option}"), {"maxlen": "10"}
    async with opened(url, **options) if by_option else opened(f"{url}?maxlen=10") as publisher:
        for _ in range(3):
            await publisher.publish_many([new_claim() for _ in range(200)])
    async with redis.asyncio.Redis.from_url(redis_url) as client:
        assert 10 <= await client.xlen(f"trimmed{by_option}") < 300


async def test_large_batches_are_sent_in_chunks(redbox_runner, redis_url: str):
    claims = [new_claim(bytes(2**20 - 1), number=number) for number in range(1, 11)]
    async with opened(stream_url(redis_url, "large")) as publisher:
        assert await publisher.publish_many(claims) == [None] * 10
    async with redis.asyncio.Redis.from_url(redis_url) as client:
        ids = [fields[b"event_id"].decode() for _, fields in await client.xrange("large")]
        await client.delete("large")
    assert ids == [claim.event_id for claim in claims]


@pytest.mark.req("PC-4")
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (b"LOADING Redis is loading the dataset in memory", Unavailable),
        (b"READONLY You can't write against a read only replica.", Unavailable),
        (b"BUSY Redis is busy running a script.", Unavailable),
        (b"OOM command not allowed when used memory > 'maxmemory'.", Unavailable),
        (b"MISCONF Redis is configured to save RDB snapshots", Unavailable),
        (b"NOREPLICAS Not enough good replicas to write.", Unavailable),
        (b"MASTERDOWN Link with MASTER is down", Unavailable),
        (b"CLUSTERDOWN Hash slot not served", Unavailable),
        (b"TRYAGAIN Multiple keys request during rehashing of slot", Unavailable),
        (b"NOAUTH Authentication required.", Unavailable),
        (b"WRONGPASS invalid username-password pair", Unavailable),
        (b"ERR max number of clients reached", Unavailable),
        (b"NOPERM this user has no permissions", NotPublished),
        (b"MOVED 3999 127.0.0.1:6381", NotPublished),
        (b"WRONGTYPE Operation against a key", NotPublished),
        (b"ERR Protocol error: invalid bulk length", Reject),
        (b"ERR something new", NotPublished),
    ],
)
async def test_each_error_reply_of_a_server(redbox_runner, error: bytes, kind: type):
    async with refusing_server(error) as url, opened(stream_url(url)) as publisher:
        with pytest.raises(NotPublished) as caught:
            await publisher.publish(new_claim())
        assert type(caught.value) is kind
        outcomes = await publisher.publish_many([new_claim(), new_claim()])
        assert [type(outcome) for outcome in outcomes] == [kind, kind]


@pytest.mark.req("PC-4")
async def test_a_key_of_another_type(redbox_runner, redis_url: str):
    async with redis.asyncio.Redis.from_url(redis_url) as client:
        await client.set("taken", 1)
        async with opened(stream_url(redis_url, "taken")) as publisher:
            with pytest.raises(NotPublished, match="WRONGTYPE"):
                await publisher.publish(new_claim())
            await client.delete("taken")
            await publisher.publish(new_claim())


@pytest.mark.req("PC-4")
async def test_a_wrong_or_missing_password(redbox_runner):
    with servers.redis_server(requirepass="hush") as server:
        for login in ("", ":wrong@", "nobody:wrong@"):
            url = f"redis+stream://{login}127.0.0.1:{server.port}/0/shop"
            async with opened(url) as publisher:
                with pytest.raises(Unavailable):
                    await publisher.publish(new_claim())
        async with opened(f"redis+stream://:hush@127.0.0.1:{server.port}/0/shop") as publisher:
            await publisher.publish(new_claim())
            assert publisher.target == f"redis+stream://127.0.0.1:{server.port}/0/shop"
            server.stop()
            with pytest.raises(Unavailable):
                await publisher.publish(new_claim())
            server.start()
            await publisher.publish(new_claim())


@pytest.mark.req("PC-4")
async def test_a_payload_that_the_server_refuses(redbox_runner):
    with servers.redis_server(proto_max_bulk_len="1mb") as server:
        url = f"redis+stream://127.0.0.1:{server.port}/0/shop"
        async with opened(url) as publisher:
            outcomes = await publisher.publish_many([new_claim(), new_claim(bytes(2**20 + 1)), new_claim()])
            # The server hangs up after its error reply, which may be lost with the connection.
            assert outcomes[0] is None or isinstance(outcomes[0], Unavailable)
            assert isinstance(outcomes[1], Reject | Unavailable)
            assert isinstance(outcomes[2], Unavailable)
            await publisher.publish(new_claim())


@pytest.mark.req("PC-1")
async def test_a_lost_reply_is_not_an_acknowledgement_and_nothing_is_repeated(redbox_runner, redis_url: str):
    port = urlsplit(redis_url).port or 0
    async with redis.asyncio.Redis.from_url(redis_url) as client, proxy(port) as between:
        async with opened(stream_url(between.url, "lost")) as publisher:
            between.lose_reply_to(b"XADD")
            with pytest.raises(Unavailable):
                await publisher.publish(new_claim())
            assert (between.lost, await client.xlen("lost")) == (1, 1)
            await publisher.publish(new_claim())
        await client.delete("lost")


@pytest.mark.req("PC-3")
async def test_events_with_a_reply_before_the_connection_broke_are_published(redbox_runner):
    """A server that replies twice and hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while b"XADD" not in (data := await reader.read(2**16)):
            if not data:
                break
            writer.write(b"+OK\r\n" * data.count(b"*"))
        writer.write(b"$3\r\n1-1\r\n$3\r\n1-2\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        url = f"redis+stream://127.0.0.1:{server.sockets[0].getsockname()[1]}/0/shop"
        async with opened(url) as publisher:
            outcomes = await publisher.publish_many([new_claim() for _ in range(4)])
        assert outcomes[:2] == [None, None]
        assert [type(outcome) for outcome in outcomes[2:]] == [Unavailable, Unavailable]
    finally:
        server.close()


@pytest.mark.parametrize(
    "url",
    [
        "redis+stream://",
        "redis+stream://host",
        "redis+stream://host:6379/0",
        "redis+stream://host:6379/0/",
        "redis+stream://host:6379/shop",
        "redis+stream://:hush@host:port/0/shop",
        "redis+stream://:hush@host:6379/0/shop?socket_timeout=long",
        "redis+stream://:hush@host:6379/0/shop?nonsense=1",
    ],
)
def test_invalid_urls(url: str):
    with pytest.raises(InvalidURL) as caught:
        open_publisher(url)
    assert "hush" not in str(caught.value)
    assert "__init__" not in str(caught.value)


@pytest.mark.parametrize("maxlen", ["0", "many", -1])
def test_invalid_maxlen(maxlen: object):
    with pytest.raises(UsageError, match="maxlen must be a whole number"):
        open_publisher("redis+stream://host:6379/0/shop", maxlen=maxlen)
