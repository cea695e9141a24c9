"""An HTTP server for metrics and health alone: beside relays, or of the exporter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from redbox.relay import Relay
from redbox.service import HOST
from redbox.service.health import Health, HealthApp, RelayHealth
from redbox.service.http.listening import Address
from redbox.service.http.pool import Limits
from redbox.service.http.server import HttpServer

LIMITS: Final = Limits(
    connections=32, head_bytes=8192, head_seconds=5.0, body_seconds=5.0, bodies=65536, write_seconds=10.0
)


class HealthServer(HttpServer):
    """Serves metrics and health while its `async with` block runs."""

    def __init__(
        self, source: Health, port: int, host: str = HOST, *, host_option: str = "--host", port_option: str = "--port"
    ) -> None:
        """With port 0 the system chooses one. The options are those that an error advises to change."""
        address = Address(host=host, port=port, what="metrics", host_option=host_option, port_option=port_option)
        super().__init__(HealthApp(source), address, LIMITS)


class Monitor(HealthServer):
    """Serves the metrics and the health of relays."""

    def __init__(self, relays: Sequence[Relay], port: int, host: str = HOST) -> None:
        super().__init__(RelayHealth(relays), port, host, host_option="--metrics-host", port_option="--metrics-port")
