"""Strict requests: Litestar ignores unknown parameters and converts types of a body; here both are refused."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote

import msgspec
from litestar import Request
from litestar.datastructures import State
from litestar.handlers.base import BaseRouteHandler
from litestar.params import QueryParameter
from litestar.utils.signature import ParsedSignature

from redbox.arguments import shown
from redbox.errors import UsageError

#: What takes the place of a slash inside a part of a path. No id and no key can have it.
SLASH: Final = "\x1f"


async def check_request(request: Request[Any, Any, State]) -> None:
    """Refuses unknown and repeated query parameters, and a body that is not exactly as its type says."""
    handler = request.route_handler
    check_query(request, _query_names(handler))
    data = handler.parsed_fn_signature.parameters.get("data")
    if data is not None:
        _check_body(await request.body(), data.annotation)


def check_query(request: Request[Any, Any, State], known: frozenset[str]) -> None:
    """Refuses unknown and repeated query parameters."""
    for name in request.query_params:
        if name not in known:
            choice = f"it takes {', '.join(sorted(known))}" if known else "it takes none"
            raise _invalid(name, f"there is no such query parameter; {choice}")
        if len(request.query_params.getall(name)) > 1:
            raise _invalid(name, "is given more than once")


def _check_body(body: bytes, kind: Any) -> None:
    try:
        msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _invalid("body", "is nested too deeply" if isinstance(error, RecursionError) else str(error)) from None


def _invalid(name: str, problem: str) -> UsageError:
    error = UsageError(f"{name if name.isidentifier() and name.isascii() else shown(name)}: {problem}")
    error.argument = name
    return error


@lru_cache(maxsize=256)
def _query_names(handler: BaseRouteHandler) -> frozenset[str]:
    """The query parameters of a handler and of its dependencies."""
    dependencies = handler.resolve_dependencies()

    def names(signature: ParsedSignature) -> Iterator[str]:
        for name, field in signature.parameters.items():
            if name in dependencies:
                yield from names(dependencies[name].parsed_fn_signature)
            elif isinstance(field.kwarg_definition, QueryParameter):
                yield field.kwarg_definition.name or name

    return frozenset(names(handler.parsed_fn_signature))


def keep_slashes(app: Any) -> Any:
    """Wraps an ASGI application: `%2F` does not end a part of the path, so that ids and keys may have slashes."""

    async def wrapped(scope: Any, receive: Any, send: Any) -> None:
        raw = scope.get("raw_path") or b""
        if b"%2f" in raw.lower():
            parts = raw.partition(b"?")[0].decode("latin-1").split("/")
            path = "/".join(unquote(part).replace("/", SLASH) for part in parts)
            scope = {**scope, "path": path}
        await app(scope, receive, send)

    return wrapped


def path_text(value: str) -> str:
    """A part of the path as it was meant."""
    return value.replace(SLASH, "/")
