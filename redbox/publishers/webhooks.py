"""Standard Webhooks: signatures that prove to a receiver who sent a request, and that it was not changed."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Final

from redbox.arguments import invalid

PREFIX: Final = "whsec_"
KEY_BYTES: Final = 24  # the least that the specification allows


def read_secrets(text: str) -> list[bytes]:
    """Parses one secret, or several separated by spaces, as needed while a secret is rotated."""
    keys = []
    for word in text.split() if isinstance(text, str) else ():
        try:
            bare = word.removeprefix(PREFIX).rstrip("=")
            keys.append(base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True))
        except (binascii.Error, ValueError):
            keys.append(b"")
    if not keys or not all(keys):
        raise invalid("secret", f"must be {PREFIX} followed by base64, or several of them separated by spaces")
    if min(map(len, keys)) < KEY_BYTES:
        raise invalid(
            "secret",
            f"must have at least {KEY_BYTES} bytes, in base64 after {PREFIX}; make one with: openssl rand -base64 32",
        )
    return keys


def signature_headers(keys: list[bytes], event_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Returns the three headers of a signed request, with a signature for each key. `timestamp` is in seconds."""
    signed = b"%s.%d.%s" % (event_id.encode(), timestamp, body)
    signatures = [b"v1," + binascii.b2a_base64(hmac.digest(key, signed, hashlib.sha256), newline=False) for key in keys]
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": b" ".join(signatures).decode(),
    }
