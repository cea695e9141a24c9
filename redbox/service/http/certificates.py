"""When a certificate is valid."""

from __future__ import annotations

import ssl
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final

#: A certificate that ends earlier than this is worth a warning: most are replaced 30 days before their end.
SOON: Final = timedelta(days=7)
_NO_CHECK_TIME: Final = 0x200000  # OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which Python does not name


def certificate_warning(server: ssl.SSLContext, file: str) -> str | None:
    """What is wrong with the dates of the certificate that a server uses, which is the first one of the file; None if
    nothing is, or if they cannot be read."""
    validity = _validity(server, file)
    if validity is None:
        return None
    begins, ends = validity
    now = datetime.now(UTC)
    if now < begins:
        return f"the certificate {file} is not valid before {begins:%Y-%m-%d %H:%M} UTC: clients refuse it until then"
    if now >= ends:
        return f"the certificate {file} has expired on {ends:%Y-%m-%d %H:%M} UTC: clients refuse it; replace it"
    if ends - now < SOON:
        return f"the certificate {file} expires on {ends:%Y-%m-%d %H:%M} UTC; replace it before, and send SIGHUP"
    return None


def _validity(server: ssl.SSLContext, file: str) -> tuple[datetime, datetime] | None:
    """Read by a handshake in memory with a client that trusts the certificate: Python has no other way."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        client.load_verify_locations(file)
        one = client.wrap_bio(to_client, to_server)
        other = server.wrap_bio(to_server, to_client, server_side=True)
        for side in (one, other, one):  # in TLS 1.2 and 1.3 the client has seen the certificate then
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
        found: Any = one.getpeercert()
        times = [ssl.cert_time_to_seconds(found[name]) for name in ("notBefore", "notAfter")]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    begins, ends = (datetime.fromtimestamp(seconds, UTC) for seconds in times)
    return begins, ends
