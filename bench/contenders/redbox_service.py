"""The HTTP service on an embedded server, with wrk as its client in another process.

Variants: `bare` is a handler of the same application that reads the body and stores nothing; `one` posts single events,
`batch` batches of 100; `memory` posts batches while a relay drains the box, and looks at the memory of the process.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from contender import Contender, Figures, main
from litestar import Request, Response, post

from redbox import Box, Relay
from redbox.cli.process import freeze_objects
from redbox.service.app import create_app
from redbox.service.boxes import Boxes
from redbox.service.http.listening import Address
from redbox.service.http.server import HttpServer

CONNECTIONS = 64
BATCH = 100
BATCH_CONNECTIONS = 8
SECONDS = 2  # of one measurement
EVENT = {"event_type": "user.created", "payload": {"id": 42, "text": "x" * 470}}
RECEIPT = b'{"event_id":"01938a4e-5b1f-7c3d-9e2a-6f0d1c2b3a49","created":true,"durability":"server"}'
UNITS = {"us": 0.001, "ms": 1.0, "s": 1000.0}


@post("/bare", status_code=202)
async def bare(request: Request[Any, Any, Any]) -> Response[bytes]:
    """What a service that stores nothing does at least: read the body, and answer."""
    await request.body()
    return Response(RECEIPT, media_type="application/json")


class Service(Contender):
    libraries = ("redbox-outbox", "litestar", "uvicorn", "msgspec", "uvloop")
    patience = 280.0

    async def open(self) -> None:
        if shutil.which("wrk") is None:
            raise SystemExit("wrk is not installed: apt-get install wrk")
        self._directory = tempfile.TemporaryDirectory(prefix="redbox-bench-", ignore_cleanup_errors=True)
        self.box = Box.open(f"embedded:{self._directory.name}/data", name="bench")
        app = create_app(Boxes(self.box))
        app.register(bare)
        self._server = await HttpServer(app, Address()).__aenter__()
        freeze_objects()  # as `redbox up` does

    async def close(self) -> None:
        await self._server.__aexit__(None, None, None)
        await self.box.aclose()
        self._directory.cleanup()

    async def service(self, events: int) -> Figures:
        if self.variant == "memory":
            return await self._memory(events)
        path, each = {"bare": ("/bare", 1), "one": ("/v1/events", 1), "batch": ("/v1/events:batch", BATCH)}[
            self.variant
        ]
        await self._wrk(path, each, 1)
        return await self._wrk(path, each, SECONDS)

    async def _wrk(self, path: str, each: int, seconds: int) -> Figures:
        body = json.dumps(EVENT if each == 1 else [EVENT] * each)
        script = Path(self._directory.name) / "wrk.lua"
        script.write_text(f"wrk.method='POST'\nwrk.headers['content-type']='application/json'\nwrk.body=[=[{body}]=]\n")
        connections = CONNECTIONS if each == 1 else BATCH_CONNECTIONS
        wrk = await asyncio.create_subprocess_exec(
            "wrk", "-t1", f"-c{connections}", f"-d{seconds}", "--latency", "-s", str(script), self._server.url + path,
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        told = (await wrk.communicate())[0].decode()
        assert "Non-2xx" not in told, told
        rate = float(re.findall(r"Requests/sec:\s+([\d.]+)", told)[0])
        return {
            "rate": rate * each,
            "events": int(re.findall(r"(\d+) requests in", told)[0]) * each,
            "p50_ms": _milliseconds(told, "50%"),
            "p99_ms": _milliseconds(told, "99%"),
        }

    async def _memory(self, events: int) -> Figures:
        await self.box.operate.configure(who="bench", why="", keep_published=0)
        relay = Relay(self.box, "null:")
        running = asyncio.create_task(relay.run())
        posted = 0
        resident = []
        for share in (0.1, 1.0):
            while posted < events * share:
                posted += (await self._wrk("/v1/events:batch", BATCH, SECONDS))["events"]
                while relay.summary().published < posted:  # noqa: ASYNC110  # the relay has no signal for it
                    await asyncio.sleep(0.01)
            resident.append(_resident())
        relay.stop()
        await running
        return {"events": posted, "rate": posted, "first_mib": resident[0], "last_mib": resident[1]}


def _milliseconds(told: str, share: str) -> float:
    number, unit = re.findall(rf"{share}\s+([\d.]+)(us|ms|s)", told)[0]
    return round(float(number) * UNITS[unit], 3)


def _resident() -> float:
    """Memory of this process, in MiB."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return round(int(found[1]) / 1024, 1)


if __name__ == "__main__":
    main(Service)
