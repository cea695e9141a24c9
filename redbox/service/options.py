"""Options of the service."""

from __future__ import annotations

from typing import Final

import msgspec

from redbox.relay import Relay
from redbox.service.http.pool import Limits
from redbox.service.http.tokens import Tokens

MAX_BODY: Final = 8 * 1024 * 1024


class ServiceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Limits and flags of the service.

    `delivers`: a relay runs in this process. `max_body`: bytes of a request. `max_bodies`: bytes of all requests that
    are being read or stored at once, also when decompressed. `batch_events`: events of one batch. `look`: the most
    events that one page of a listing reads. `preview`: the most events that a dry run reads, or `look` if it reads
    payloads. `running_jobs`: jobs, and dry runs, at once; `kept_jobs`: ended jobs that can still be asked for.
    `export_bytes`: the largest export; files of four times that are kept. `tokens`: who may call it; None: everyone who
    reaches it may do everything. `host_names`: under which it is reached, beside those of loopback. `relays`: those of
    this process.
    """

    delivers: bool = False
    max_body: int = MAX_BODY
    max_bodies: int = Limits().bodies
    batch_events: int = 10_000
    look: int = 10_000
    preview: int = 100_000
    running_jobs: int = 4
    kept_jobs: int = 100
    export_bytes: int = 256 * 1024 * 1024
    tokens: Tokens | None = None
    host_names: tuple[str, ...] = ()
    relays: tuple[Relay, ...] = ()
