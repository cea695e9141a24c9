"""Who may do what: scopes, and the name of the caller for the operations log. Every caller is granted all scopes."""

from __future__ import annotations

import socket
from collections.abc import Callable
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

from litestar import Request
from litestar.connection import ASGIConnection
from litestar.datastructures import State
from litestar.handlers.base import BaseRouteHandler

Connection = ASGIConnection[Any, Any, Any, Any]
Guard = Callable[[Connection, BaseRouteHandler], None]
#: A page of the dashboard sends this header with its requests.
CLIENT_HEADER: Final = "redbox-client"
DASHBOARD: Final = "dashboard"


class Scope(StrEnum):
    """What a token permits. `operate` includes `read`."""

    INGEST = "ingest"
    READ = "read"
    OPERATE = "operate"


def granted(connection: Connection) -> frozenset[Scope]:  # noqa: ARG001  # without tokens, everyone has all scopes
    """The scopes of the caller."""
    return frozenset(Scope)


@lru_cache
def require(scope: Scope) -> Guard:
    """A guard that refuses callers without this scope."""

    def guard(connection: Connection, _: BaseRouteHandler) -> None:
        assert scope in granted(connection)

    return guard


async def provide_operator(request: Request[Any, Any, State]) -> str:
    """The name of the caller for the operations log, the dependency `operator`."""
    kind = DASHBOARD if request.headers.get(CLIENT_HEADER) == DASHBOARD else "http"
    return f"{kind}@{socket.gethostname()}"
