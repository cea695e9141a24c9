"""The files of the dashboard: read once, served with an ETag, and with headers that forbid what they do not need."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Final

import msgspec
from litestar import HttpMethod, Request, Response, Router, route
from litestar.datastructures import State
from litestar.exceptions import NotFoundException

from redbox.service.http.headers import SECURITY

READ: Final = [HttpMethod.GET, HttpMethod.HEAD]
INDEX: Final = "index.html"
TYPES: Final = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}
#: Text of events is hostile: no inline script or style, no other origin, and no way to turn text into markup.
POLICY: Final = (
    "default-src 'self'; base-uri 'none'; object-src 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS: Final = {name.decode(): value.decode() for name, value in SECURITY} | {
    "content-security-policy": POLICY,
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "vary": "accept-encoding",
    "cache-control": "no-cache",  # a browser asks each time, and gets 304 until redbox is upgraded
}


class Asset(msgspec.Struct, frozen=True):
    """A file of the dashboard, as it is and compressed."""

    content: bytes
    compressed: bytes
    media_type: str
    etag: str


def assets() -> dict[str, Asset]:
    """All files by their path below the folder of the dashboard. Works inside a zip archive too."""
    return {path: _asset(path, file.read_bytes()) for path, file in _walk(files("redbox.service") / "dashboard", "")}


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _walk(entry, f"{prefix}{entry.name}/")
        elif _suffix(entry.name) in TYPES:
            yield prefix + entry.name, entry


def _suffix(name: str) -> str:
    return name.rpartition(".")[2]


def _asset(path: str, content: bytes) -> Asset:
    return Asset(
        content, gzip.compress(content, mtime=0), TYPES[_suffix(path)], f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    )


def pages() -> Router:
    """Serves the page on `/` and its files on `/static/`. Its views are fragments of the URL, so they need no route."""
    found = assets()

    @route("/", http_method=READ, include_in_schema=False)
    async def index(request: Request[Any, Any, State]) -> Response[bytes]:
        return _respond(request, found[INDEX])

    @route("/static/{path:path}", http_method=READ, include_in_schema=False)
    async def static(request: Request[Any, Any, State]) -> Response[bytes]:
        asset = found.get(str(request.path_params["path"]).lstrip("/"))
        if asset is None:
            raise NotFoundException("the dashboard has no such file")
        return _respond(request, asset)

    return Router("/", route_handlers=[index, static])


def _respond(request: Request[Any, Any, State], asset: Asset) -> Response[bytes]:
    headers = {**HEADERS, "etag": asset.etag}
    known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    if asset.etag in known or "*" in known:
        return Response(b"", status_code=304, headers=headers, media_type=asset.media_type)
    content = asset.content
    if "gzip" in request.headers.get("accept-encoding", ""):
        content, headers["content-encoding"] = asset.compressed, "gzip"
    return Response(content, status_code=200, headers=headers, media_type=asset.media_type)
