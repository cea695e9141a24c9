"""What keep-alive, HTTP/2 and batches are worth: one client process, nginx with TLS on the same machine, in one run.

python -m bench.http_versions

Prints for each way the events per second, the client's CPU time per event, and the connections that the server saw.
The ratios are to redbox as it is. docs/decisions/0054-http2.md has the figures that decided. Needs nginx and
httpx[http2].
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import trustme

from redbox.events import Claim
from redbox.publishers.registry import open_publisher
from redbox.testing.publisher_contract import new_claim
from tests.servers import free_port

EVENTS = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
ROUNDS = 3
CONCURRENCY = 100
BATCH = 100
PAYLOAD = (
    b'{"order":"7","status":"paid","lines":[' + b",".join(b'{"sku":"%d","count":1}' % n for n in range(20)) + b"]}"
)

CONFIG = """
daemon off; master_process off; pid {place}/pid; error_log {place}/error.log;
events {{ worker_connections 4096; }}
http {{
  log_format connections '$connection $server_protocol';
  access_log {place}/access.log connections;
  client_body_temp_path {place}/body; proxy_temp_path {place}/p; fastcgi_temp_path {place}/f;
  uwsgi_temp_path {place}/u; scgi_temp_path {place}/s;
  ssl_certificate {place}/cert.pem; ssl_certificate_key {place}/key.pem;
  keepalive_requests 1000000; client_body_buffer_size 2m; client_max_body_size 8m;
  http2_max_concurrent_streams 1000;
  server {{ listen 127.0.0.1:{kept} ssl http2; location / {{ return 204; }} }}
  server {{ listen 127.0.0.1:{closed} ssl; keepalive_timeout 0; location / {{ return 204; }} }}
}}
"""

Publish = Callable[[list[Claim]], Awaitable[None]]


@contextmanager
def nginx() -> Iterator[tuple[str, str, Path]]:
    """URLs of a server that keeps connections, and of one that closes them; and its directory."""
    kept, closed = free_port(), free_port()
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        authority = trustme.CA()
        certificate = authority.issue_cert("127.0.0.1")
        authority.cert_pem.write_to_path(str(place / "ca.pem"))
        certificate.private_key_pem.write_to_path(str(place / "key.pem"))
        for blob in certificate.cert_chain_pems:
            blob.write_to_path(str(place / "cert.pem"), append=True)
        (place / "nginx.conf").write_text(CONFIG.format(place=place, kept=kept, closed=closed))
        process = subprocess.Popen(["nginx", "-c", str(place / "nginx.conf")])  # noqa: S603, S607
        try:
            for _ in range(100):
                if (place / "pid").exists():
                    break
                time.sleep(0.05)
            yield f"https://127.0.0.1:{kept}/", f"https://127.0.0.1:{closed}/", place
        finally:
            process.terminate()
            process.wait()


@asynccontextmanager
async def redbox(url: str, **options: Any) -> AsyncIterator[Publish]:
    publisher = open_publisher(url, **options)
    await publisher.open("bench")

    async def publish(claims: list[Claim]) -> None:
        if len(claims) == 1:
            await publisher.publish(claims[0])
        else:
            assert set(await publisher.publish_many(claims)) == {None}

    yield publish
    await publisher.aclose()


@asynccontextmanager
async def with_httpx(url: str, http2: bool, authority: Path) -> AsyncIterator[Publish]:
    limits = httpx.Limits(max_connections=1 if http2 else CONCURRENCY, max_keepalive_connections=CONCURRENCY)
    async with httpx.AsyncClient(
        http1=not http2, http2=http2, verify=str(authority), limits=limits, timeout=60
    ) as client:

        async def publish(claims: list[Claim]) -> None:
            (claim,) = claims
            headers = {"content-type": "application/json", "ce-id": claim.event_id, "ce-type": claim.event.event_type}
            answer = await client.post(url, content=claim.event.payload, headers=headers)
            assert answer.status_code == 204

        yield publish


async def measure(publish: Publish, size: int) -> tuple[float, float]:
    """Events per second, and milliseconds of CPU time per event."""
    claims = [new_claim(PAYLOAD, attempts=1) for _ in range(EVENTS)]
    parts = iter([claims[at : at + size] for at in range(0, EVENTS, size)])

    async def work() -> None:
        for part in parts:
            await publish(part)

    await publish(claims[:size])
    began, spent = time.perf_counter(), time.process_time()
    await asyncio.gather(*(work() for _ in range(CONCURRENCY if size == 1 else 2)))
    return EVENTS / (time.perf_counter() - began), (time.process_time() - spent) * 1000 / EVENTS


async def main() -> None:
    with nginx() as (kept, closed, place):
        os.environ["SSL_CERT_FILE"] = str(place / "ca.pem")
        ways: dict[str, tuple[Callable[[], Any], int]] = {
            "redbox, HTTP/1.1 kept": (lambda: redbox(kept), 1),
            "redbox, a connection for each event": (lambda: redbox(closed), 1),
            "redbox, batches of 100": (lambda: redbox(kept, batch=BATCH), BATCH),
            "redbox, batches of 100, gzip": (lambda: redbox(kept, batch=BATCH, gzip=0), BATCH),
            "httpx, HTTP/1.1 kept": (lambda: with_httpx(kept, False, place / "ca.pem"), 1),
            "httpx, HTTP/2": (lambda: with_httpx(kept, True, place / "ca.pem"), 1),
        }
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        connections: dict[str, int] = {}
        for _ in range(ROUNDS):
            for name, (opened, size) in ways.items():
                (place / "access.log").write_text("")
                async with opened() as publish:
                    found[name].append(await measure(publish, size))
                lines = (place / "access.log").read_text().splitlines()
                connections[name] = len({line.split()[0].strip("\0") for line in lines})
        base = [statistics.median(values) for values in zip(*found["redbox, HTTP/1.1 kept"], strict=True)]
        for name, values in found.items():
            rate, cpu = (statistics.median(each) for each in zip(*values, strict=True))
            print(
                f"{name:38} {rate:9,.0f}/s ({rate / base[0]:5.2f})  {cpu:6.3f} ms ({cpu / base[1]:5.2f})"
                f"  {connections[name]:6,} connections"
            )


if __name__ == "__main__":
    asyncio.run(main())
