"""Sockets that listen: where, and why one cannot be opened."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from typing import Any, Final

import msgspec

from redbox.errors import RedboxError, UsageError
from redbox.service import HOST

BACKLOG: Final = 1024


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where a server listens. `certificate` and `key`: PEM files for TLS. `loopback_only`: other hosts are refused.
    `what`: is served there, for errors; `host_option` and `port_option`: what they advise to change."""

    host: str = HOST
    port: int = 0
    certificate: str | None = None
    key: str | None = None
    loopback_only: bool = False
    what: str = "HTTP"
    host_option: str = "--host"
    port_option: str = "--port"

    @property
    def scheme(self) -> str:
        return "http" if self.certificate is None else "https"


class NotLoopback(UsageError):
    """Without tokens, others could reach the service."""

    def __init__(self, address: Address) -> None:
        super().__init__(
            f"{address.host_option} {address.host}: without tokens, the service listens on {HOST} only, since everyone "
            "who reaches it could read and change all events; give tokens with --token-file FILE or $REDBOX_TOKENS, "
            "one per line: name scopes token"
        )


def listen(address: Address) -> list[socket.socket]:
    """Sockets that listen on all addresses of the host; an error says which option to change."""
    opened: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        problem: OSError | None = None
        for family, *_, where in sorted(set(found)):
            if address.loopback_only and not is_loopback(str(where[0])):
                raise NotLoopback(address)
            port = opened[0].getsockname()[1] if opened else address.port
            try:
                opened.append(_bind(family, (where[0], port, *where[2:]), alone=len(found) == 1))
            except OSError as error:
                if error.errno != errno.EADDRNOTAVAIL:
                    raise
                problem = error
        if not opened and problem is not None:
            raise problem
    except (OSError, UnicodeError, OverflowError) as error:
        _close(opened)
        raise _cannotlisten(address, error) from error
    except BaseException:
        _close(opened)
        raise
    return opened


def is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _close(listeners: list[socket.socket]) -> None:
    for each in listeners:
        each.close()


def _bind(family: int, where: Any, *, alone: bool) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and not alone:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(where)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def _cannotlisten(address: Address, error: Exception) -> RedboxError:
    number = getattr(error, "errno", None)
    if isinstance(error, UnicodeError):
        reason = "it is not the name of a host"
    elif isinstance(error, socket.gaierror):
        reason = str(error.strerror).lower()
    else:
        reason = os.strerror(number).lower() if number else str(error)
    wrong_host = isinstance(error, socket.gaierror | UnicodeError) or number == errno.EADDRNOTAVAIL
    advice = address.host_option if wrong_host else f"{address.port_option}, 0 for any that is free"
    return RedboxError(
        f"{address.what} cannot be served on {address.host} port {address.port}: {reason}; choose another {advice}"
    )
