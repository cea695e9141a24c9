"""Strict requests: Litestar ignores unknown parameters and converts types of a body; here both are refused."""

from __future__ import annotations

import json
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
    """Refuses unknown and repeated query parameters, and a body that is not exactly as its type says, or has a field
    twice."""
    handler = request.route_handler
    check_query(request, frozenset(query_names(handler).values()))
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
        json.loads(body, object_pairs_hook=_refuse_repeated, parse_int=str, parse_float=str)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _invalid("body", "is nested too deeply" if isinstance(error, RecursionError) else str(error)) from None


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> None:
    """Refuses an object that has a field twice: programs differ in which one they take."""
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise _invalid(name, "is given more than once")
        seen.add(name)


def _invalid(name: str, problem: str) -> UsageError:
    error = UsageError(f"{name if name.isidentifier() and name.isascii() else shown(name)}: {problem}")
    error.argument = name
    return error


@lru_cache(maxsize=256)
def query_names(handler: BaseRouteHandler) -> dict[str, str]:
    """The query parameters of a handler and of its dependencies, by the names of the function's parameters."""
    dependencies = handler.resolve_dependencies()

    def names(signature: ParsedSignature) -> Iterator[tuple[str, str]]:
        for name, field in signature.parameters.items():
            if name in dependencies:
                yield from names(dependencies[name].parsed_fn_signature)
            elif isinstance(field.kwarg_definition, QueryParameter):
                yield name, field.kwarg_definition.name or name

    return dict(names(handler.parsed_fn_signature))


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
    """The text of a part of the path, with its slashes restored."""
    return value.replace(SLASH, "/")
