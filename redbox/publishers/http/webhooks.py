"""Standard Webhooks: signatures that prove to a receiver who sent a request, and that it was not changed."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import logging
import time
from collections.abc import Iterable
from typing import Final

from redbox.arguments import invalid
from redbox.errors import UsageError
from redbox.publishers.options import FileText

logger = logging.getLogger(__name__)

PREFIX: Final = "whsec_"
KEY_BYTES: Final = 24  # the least that the specification allows
RELOAD_SECONDS: Final = 5.0


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


class SigningKeys:
    """The keys of an option `secret`. Those of a file are read again when it has changed."""

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self.current = read_secrets(secret)
        self._next_look = time.monotonic() + RELOAD_SECONDS

    def reload(self) -> str | None:
        """Looks at the file from time to time. Returns the new text if it has changed. A file that cannot be used
        changes nothing."""
        if not isinstance(self._secret, FileText) or time.monotonic() < self._next_look:
            return None
        self._next_look = time.monotonic() + RELOAD_SECONDS
        try:
            found = FileText.read(self._secret.path)
            if found == self._secret:
                return None
            self.current = read_secrets(found)
        except (ValueError, UsageError) as error:
            logger.warning("the secret is still the previous one: %s", error)
            return None
        logger.info("the secret was read again from %s", found.path)
        self._secret = found
        return found


def signature_headers(keys: list[bytes], event_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Returns the three headers of a signed request, with a signature for each key. `timestamp` is in seconds."""
    signed = b"%s.%d.%s" % (event_id.encode(), timestamp, body)
    signatures = [b"v1," + binascii.b2a_base64(hmac.digest(key, signed, hashlib.sha256), newline=False) for key in keys]
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": b" ".join(signatures).decode(),
    }


def batch_id(event_ids: Iterable[str]) -> str:
    """The id of a batch, for its signature: the same whenever the same events are sent together."""
    return f"batch-{hashlib.sha256(chr(10).join(event_ids).encode()).hexdigest()[:32]}"
