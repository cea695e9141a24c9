"""Who may do what: the scopes of a caller, and its name for the operations log."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any, Final

from litestar import Request
from litestar.connection import ASGIConnection
from litestar.datastructures import State
from litestar.exceptions import NotAuthorizedException, PermissionDeniedException
from litestar.handlers.base import BaseRouteHandler

from redbox.service.http.tokens import Scope, Token, Tokens

__all__ = ["CLIENT_HEADER", "DASHBOARD", "Scope", "check", "granted", "provide_operator", "require"]

Connection = ASGIConnection[Any, Any, Any, Any]
Guard = Callable[[Connection, BaseRouteHandler], Awaitable[None]]
#: A page of the dashboard sends this header with its requests.
CLIENT_HEADER: Final = "redbox-client"
DASHBOARD: Final = "dashboard"
_EVERYTHING: Final = frozenset(Scope)
_NOTHING: Final[frozenset[Scope]] = frozenset()
_CHALLENGE: Final = 'Bearer realm="redbox"'


def granted(connection: Connection) -> frozenset[Scope]:
    """The scopes of the caller; none without a valid token."""
    tokens: Tokens | None = connection.app.state.tokens
    if tokens is None:
        return _EVERYTHING
    token = _token(connection, tokens)
    return _NOTHING if token is None else token.scopes


def check(connection: Connection, scope: Scope) -> None:
    """Refuses a caller without this scope: 401 without a valid token, 403 without the scope."""
    tokens: Tokens | None = connection.app.state.tokens
    if tokens is None:
        return
    token = _token(connection, tokens)
    if token is None:
        sent = "authorization" in connection.headers
        raise NotAuthorizedException(
            "the token is not valid" if sent else "send a token in the header `Authorization: Bearer TOKEN`",
            headers={"www-authenticate": f'{_CHALLENGE}, error="invalid_token"' if sent else _CHALLENGE},
        )
    if scope not in token.scopes:
        raise PermissionDeniedException(
            f"the token {token.name} does not have the scope {scope}",
            headers={"www-authenticate": f'{_CHALLENGE}, error="insufficient_scope", scope="{scope}"'},
        )


@lru_cache
def require(scope: Scope) -> Guard:
    """A guard that refuses callers without this scope."""

    async def guard(connection: Connection, _: BaseRouteHandler) -> None:  # Litestar runs other guards in threads
        check(connection, scope)

    return guard


def _token(connection: Connection, tokens: Tokens) -> Token | None:
    values = connection.headers.getall("authorization", [])
    kind, _, secret = values[0].partition(" ") if len(values) == 1 else ("", "", "")
    return tokens.find(secret.strip()) if kind.lower() == "bearer" else None


async def provide_operator(request: Request[Any, Any, State]) -> str:
    """The name of the caller for the operations log, the dependency `operator`."""
    tokens: Tokens | None = request.app.state.tokens
    token = None if tokens is None else _token(request, tokens)
    if token is not None:
        return token.name
    kind = DASHBOARD if request.headers.get(CLIENT_HEADER) == DASHBOARD else "http"
    return f"{kind}@{socket.gethostname()}"
