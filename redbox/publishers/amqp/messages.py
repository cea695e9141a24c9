"""What the broker gets for an event: body, properties and routing key, checked against the limits of AMQP 0-9-1."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Final, NamedTuple

from pamqp import commands as spec
from pamqp import encode

from redbox.arguments import counted, invalid, text
from redbox.errors import Reject
from redbox.events import Claim
from redbox.publishers.base import PARTITION_HEADER, passed_on

APP_ID: Final = "redbox"
PERSISTENT: Final = 2  # the delivery mode: a durable queue keeps the event over a restart of the broker
TRANSIENT: Final = 1
SHORT: Final = 255  # bytes of a short string: routing key, id, type
HEADER_NAME: Final = 128  # bytes
FRAME_OVERHEAD: Final = 8 + 14  # of a frame; and of the content header before its properties

#: RabbitMQ takes these headers for lists of further routing keys; a text there closes the channel.
_ROUTING_HEADERS: Final = frozenset({"CC", "BCC"})
_FIELD: Final = re.compile(r"\{(\w*)\}")
_VALUES: Final[dict[str, Callable[[Claim], str]]] = {
    "event_type": lambda claim: claim.event.event_type,
    "partition_key": lambda claim: claim.event.partition_key or claim.event_id,
}
DEFAULT_ROUTING_KEY: Final = "{event_type}"


class Message(NamedTuple):
    """The arguments of one basic.publish, and the number of the attempt."""

    body: bytes
    properties: spec.Basic.Properties
    routing_key: str
    attempts: int


def routing_key_of(template: object) -> Callable[[Claim], str]:
    """Returns a function that computes the routing key of an event. `template` may contain {event_type} and
    {partition_key}."""
    known = text("routing_key", template)
    parts = _FIELD.split(known)  # text, name, text, name, ..., text
    names = parts[1::2]
    if any(name not in _VALUES for name in names) or re.search(r"[{}]", "".join(parts[::2])):
        fields = " and ".join(f"{{{name}}}" for name in _VALUES)
        raise invalid("routing_key", f"may contain {fields}, and no other braces")
    if names == ["event_type"] and known == DEFAULT_ROUTING_KEY:
        return _VALUES["event_type"]
    return lambda claim: _FIELD.sub(lambda found: _VALUES[found[1]](claim), known)


def message_of(claim: Claim, routing_key: str, *, delivery_mode: int, frame_max: int) -> Message:
    """Returns the message for an event. Raises Reject for an event that AMQP cannot carry."""
    event = claim.event
    body, content_type = event.encode()
    headers = passed_on(claim)
    if event.partition_key is not None:
        headers[PARTITION_HEADER] = event.partition_key
    for what, value in (("routing key", routing_key), ("event_type", event.event_type), ("content_type", content_type)):
        if len(value) * 4 > SHORT and len(value.encode()) > SHORT:
            raise Reject(f"the {what} is longer than AMQP allows: {SHORT} bytes of UTF-8", kind="too large")
    for name in headers:
        if len(name) > HEADER_NAME:
            raise Reject(f"a header name is longer than AMQP allows: {HEADER_NAME} bytes", kind="header")
        if name in _ROUTING_HEADERS:
            raise Reject(
                f"the header {name} would route the event in RabbitMQ, so it cannot be delivered", kind="header"
            )
    properties = spec.Basic.Properties(
        content_type=content_type,
        headers=dict(headers),
        delivery_mode=delivery_mode,
        message_id=claim.event_id,
        timestamp=datetime.fromtimestamp(claim.created_ms // 1000, tz=claim.created_at.tzinfo),
        message_type=event.event_type,
        app_id=APP_ID,
    )
    # Only long headers can reach the limit, so that the properties of most events are encoded once.
    if frame_max and sum(len(name) + len(value) for name, value in headers.items()) * 4 > frame_max - 4096:
        length = len(encode.field_table(dict(headers))) + 4 * SHORT + FRAME_OVERHEAD
        if length > frame_max:
            raise Reject(f"the headers do not fit into a frame of {counted(frame_max, 'byte')}", kind="too large")
    return Message(body, properties, routing_key, claim.attempts)
