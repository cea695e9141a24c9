"""Which addresses a target may have, if it may not be inside the own network."""

from __future__ import annotations

import errno
import ipaddress
import socket
from typing import Any, Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

#: Not public, although Python may say so: metadata services of clouds, and what older versions of Python do not know.
_DENIED: Final = tuple(
    map(ipaddress.ip_network, ("168.63.129.16/32", "192.0.0.0/24", "192.88.99.0/24", "64:ff9b:1::/48", "3fff::/20"))
)
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")


class PrivateAddress(OSError):
    """A target has an address that is not public."""

    def __init__(self, address: Address) -> None:
        super().__init__(
            errno.EACCES, f"its address {address} is not public, and deny_private permits only public ones"
        )


def literal_address(host: str) -> Address | None:
    """The address that a host is; None for a name. IPv4 addresses also in the older forms that are connected to, such
    as 127.1, 0x7f000001 and 2130706433."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except (OSError, ValueError):
        return None


def is_public(address: Address) -> bool:
    """Whether an address is one of the internet: not loopback, private, shared by a provider, link-local, multicast,
    reserved, or a metadata service. An IPv6 address that carries an IPv4 address is judged by that one too."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            return False
        inner = _carried(address)
        if inner is not None:
            return is_public(inner)
        if address.is_site_local:
            return False
    return (
        address.is_global
        and not address.is_multicast
        and not address.is_reserved
        and not address.is_unspecified
        and not any(address in network for network in _DENIED)
    )


def _carried(address: ipaddress.IPv6Address) -> Address | None:
    """The IPv4 address inside an IPv6 address: mapped, 6to4, Teredo or NAT64."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return None


def public_socket(info: Any) -> socket.socket:
    """A socket for the address that is about to be connected to. Raises PrivateAddress if it is not public.

    This is the last step before connecting: neither a name that resolves to another address the second time, nor an
    address in place of a name can pass.
    """
    family, kind, protocol, _, where = info
    address = ipaddress.ip_address(where[0])
    if not is_public(address):
        raise PrivateAddress(address)
    return socket.socket(family=family, type=kind, proto=protocol)
