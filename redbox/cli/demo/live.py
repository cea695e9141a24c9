"""`make demo-up`: a live dashboard. Until Ctrl-C, orders are put over HTTP into a `redbox up` whose target sometimes
fails."""

from __future__ import annotations

import asyncio
import http.client
import json
import random
import re
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from redbox.cli.demo.service import OrderService
from redbox.store.embedded import server as embedded

KINDS: Final = ("order.placed", "order.paid", "order.shipped", "invoice.sent")
CUSTOMERS: Final = 20
ORDERS_PER_SECOND: Final = 8.0
POISON: Final = 0.02  # share of orders that the service rejects
START_SECONDS: Final = 60.0
_chance: Final = random.Random()  # noqa: S311  # nothing depends on it


async def run() -> None:
    """Runs until it is cancelled, or SIGTERM. The box is in a temporary directory, which is removed at the end."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    service = OrderService()
    await service.start()
    with tempfile.TemporaryDirectory(prefix="redbox-demo-") as directory:
        data = str(Path(directory) / "data")
        up = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "redbox", "--box", "orders", "--url", f"embedded:{data}",
            "up", "--to", service.url, "--port", "0", "--retry", "exp:2s..30s", "-q", stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            assert up.stderr is not None
            url = await asyncio.wait_for(_address(up.stderr), START_SECONDS)
            print(f"Orders are put into the box, and delivered to {service.url}, which fails every third request.")
            print(f"Dashboard: {url}/  (Ctrl-C ends it)", flush=True)
            await asyncio.gather(_put_orders(url), _echo(up.stderr))
        finally:
            with suppress(ProcessLookupError):
                up.terminate()
            await up.wait()
            await service.stop()
            await asyncio.to_thread(embedded.wait_stopped, data)


async def _address(lines: asyncio.StreamReader) -> str:
    """The address at which the service is up."""
    while line := await lines.readline():
        found = re.search(rb"redbox is up: (\S+)", line)
        if found:
            return found[1].decode()
        sys.stderr.write(line.decode(errors="replace"))
    raise SystemExit("redbox up did not start")


async def _echo(lines: asyncio.StreamReader) -> None:
    """Shows warnings of the service; ends the demo with it."""
    while line := await lines.readline():
        if not any(known in line for known in (b"dashboard: ", b"are stored on", b"try: curl")):
            sys.stderr.write(line.decode(errors="replace"))
    raise SystemExit("redbox up has ended")


async def _put_orders(url: str) -> None:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    number = 0
    while True:
        number += 1
        await asyncio.to_thread(_post, connection, _order(number))
        await asyncio.sleep(_chance.expovariate(ORDERS_PER_SECOND))


def _order(number: int) -> dict[str, Any]:
    amount = -1 if _chance.random() < POISON else _chance.randint(5, 400)
    customer = _chance.randint(1, CUSTOMERS)
    return {
        "event_type": _chance.choice(KINDS),
        "payload": {"order": number, "amount": amount, "customer": customer},
        "ordering_key": f"customer-{customer}",
    }


def _post(connection: http.client.HTTPConnection, event: dict[str, Any]) -> None:
    connection.request("POST", "/v1/events", json.dumps(event), {"content-type": "application/json"})
    connection.getresponse().read()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt, asyncio.CancelledError):
        asyncio.run(run())
