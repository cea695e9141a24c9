"""Verifies signed deliveries by Standard Webhooks."""

from __future__ import annotations

import binascii
import hashlib
import hmac
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Final
from urllib.parse import unquote

from redbox.arguments import invalid
from redbox.consumer.deliveries import Delivery, body_bytes, is_batch, read_request, read_requests
from redbox.consumer.request import Headers, RequestHeaders
from redbox.durations import duration
from redbox.errors import InvalidDelivery, NotVerified, WrongSignature, WrongTimestamp
from redbox.publishers.http.webhooks import batch_id, read_secrets

TOLERANCE: Final = 300.0
MOST_SIGNATURES: Final = 32  # of one request: each is compared with one of each secret
_VERSION: Final = "v1,"


def verify(
    headers: Headers, body: bytes, secret: str | Sequence[str], *, tolerance: float | timedelta = TOLERANCE
) -> Delivery:
    """Returns the delivery of a request if it was signed with one of the secrets, at most `tolerance` seconds ago.

    `headers` is what the framework has, and `body` the raw body. Give all secrets while one is rotated. The event id,
    the time and the body are signed; the other headers are not.

    Raises WrongSignature or WrongTimestamp, and NotVerified if the request is not signed; InvalidDelivery if a signed
    request is not one of redbox.
    """
    known = RequestHeaders(headers)
    raw = body_bytes(body)
    timestamp = _check(known, raw, secret, tolerance)
    delivery = read_request(known, raw, timestamp)
    _compare_ids(known, delivery)
    return delivery


def verify_batch(
    headers: Headers, body: bytes, secret: str | Sequence[str], *, tolerance: float | timedelta = TOLERANCE
) -> list[Delivery]:
    """As `verify`, for a request that may be a batch; returns the deliveries in their order."""
    known = RequestHeaders(headers)
    raw = body_bytes(body)
    timestamp = _check(known, raw, secret, tolerance)
    deliveries = read_requests(known, raw, timestamp)
    if not is_batch(known):
        _compare_ids(known, deliveries[0])
    elif known.get("webhook-id") != batch_id(delivery.event_id for delivery in deliveries):
        # The type of the content is not signed: else the payload of one event could pass for a batch.
        raise InvalidDelivery("the signed webhook-id is not that of these events")
    return deliveries


def _check(headers: RequestHeaders, body: bytes, secret: str | Sequence[str], tolerance: float | timedelta) -> int:
    """Returns when the request was signed, in seconds since 1970. Raises NotVerified."""
    keys, longest = _keys(secret), duration("tolerance", tolerance)
    try:
        request_id, text = headers.need("webhook-id"), headers.need("webhook-timestamp")
        signatures = headers.need("webhook-signature").split()
        timestamp = headers.number("webhook-timestamp")
    except InvalidDelivery as error:
        raise NotVerified(error.message) from None
    signed = b"%s.%s.%s" % (request_id.encode("latin-1", "replace"), text.encode(), body)
    expected = [hmac.digest(key, signed, hashlib.sha256) for key in keys]
    # All are compared, so that the time taken does not say which one was nearly right.
    matches = [hmac.compare_digest(mine, given) for given in _digests(signatures) for mine in expected]
    if not any(matches):
        raise WrongSignature
    assert timestamp is not None
    age = time.time() - timestamp
    if abs(age) > longest:
        when = "ago" if age > 0 else "in the future"
        raise WrongTimestamp(f"the request was signed {abs(age):,.0f} seconds {when}; {longest:g} are tolerated")
    return timestamp


def _keys(secret: str | Sequence[str]) -> list[bytes]:
    if isinstance(secret, str):
        return read_secrets(secret)
    if not isinstance(secret, Iterable) or isinstance(secret, bytes | bytearray):
        raise invalid("secret", "must be a secret, or a list of secrets")
    known = [*secret]
    if not known:
        raise invalid("secret", "must have at least one secret")
    return [key for each in known for key in read_secrets(each)]


def _digests(signatures: list[str]) -> list[bytes]:
    """The signatures of the known version; others are skipped, as Standard Webhooks asks for."""
    found = []
    for signature in signatures[:MOST_SIGNATURES]:
        if signature.startswith(_VERSION):
            try:
                found.append(binascii.a2b_base64(signature.removeprefix(_VERSION)))
            except (binascii.Error, ValueError):
                continue
    return found


def _compare_ids(headers: RequestHeaders, delivery: Delivery) -> None:
    """The id that was signed must be that of the event."""
    named = headers.get("ce-id")
    if headers.get("webhook-id") != delivery.event_id or (named is not None and unquote(named) != delivery.event_id):
        raise InvalidDelivery("the signed webhook-id is not the id of the event")
