"""File descriptors of the process: connections of clients leave enough of them to the store and the publishers."""

from __future__ import annotations

import contextlib
import logging
import resource
from typing import Final

logger = logging.getLogger("redbox.service")

#: Descriptors that connections of clients leave to others: a publisher has up to 100 connections.
RESERVE: Final = 256


def permitted_connections(wanted: int) -> int:
    """How many connections fit below the limit of open files, at most `wanted`. Raises the soft limit as far as needed
    and permitted; under a low hard limit, connections get a quarter of it."""
    needed = wanted + RESERVE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        raised = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
            soft = raised
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    permitted = min(wanted, max(1, soft // 4, soft - RESERVE))
    logger.warning(
        "this process may have %d open files: the HTTP service accepts %d connections at once, not %d; raise the limit "
        "(ulimit -n, or LimitNOFILE of systemd) to %d",
        soft, permitted, wanted, needed,
    )  # fmt: skip
    return permitted
