"""The message of one event: its subject, headers and size."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import quote

from redbox.arguments import shown
from redbox.errors import Reject
from redbox.events import Claim
from redbox.publishers.base import ORDERING_HEADER, REASON_HEADER, passed_on
from redbox.publishers.http import cloudevents
from redbox.publishers.templates import Template

LONGEST_SUBJECT: Final = 1024  # bytes; a server closes the connection at 4,096 for the whole command
MESSAGE_ID: Final = "Nats-Msg-Id"
EXPECTED_STREAM: Final = "Nats-Expected-Stream"
SERVER_PREFIX: Final = "nats-"  # headers that a server obeys, such as Nats-Rollup, which deletes messages
VERSION_LINE: Final = len("NATS/1.0\r\n\r\n")
SUBJECT_KIND: Final = (
    "a subject to publish to: words separated by dots, without spaces, * and >, at most "
    f"{LONGEST_SUBJECT:,} bytes, and not beginning with $ or _INBOX"
)

_is_subject = re.compile(r"(?![$]|_INBOX(?:\.|\Z))[^\s.*>\x00-\x1f\x7f]+(?:\.[^\s.*>\x00-\x1f\x7f]+)*").fullmatch
_control = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]").search


class Message(NamedTuple):
    """What is sent for one event of a call; `place` is its index in the call, `size` counts headers and payload."""

    place: int
    subject: str
    headers: dict[str, str]
    payload: bytes
    size: int
    attempts: int


class Composer:
    """Makes the messages of one box."""

    def __init__(self, subject: Template, msg_id: Template, stream: str | None, source: str | None, box: str) -> None:
        self._subject = subject
        self._msg_id = msg_id
        self._box = box
        self._fixed = cloudevents.fixed_headers(source or f"/redbox/{quote(box, safe='')}")
        if stream is not None:
            self._fixed[EXPECTED_STREAM] = stream

    def message(self, place: int, claim: Claim) -> Message:
        """Returns the message of one event. Raises Reject for an event that NATS cannot carry."""
        subject = self._subject.fill(claim, self._box)
        if self._subject.constant is None and not is_subject(subject):
            raise _unsendable(f"{shown(subject)} is not {SUBJECT_KIND}")
        payload, content_type = claim.event.encode()
        headers = {**self._fixed, **cloudevents.binary_headers(claim), "ce-datacontenttype": content_type}
        for name, value in passed_on(claim).items():
            if name.lower().startswith(SERVER_PREFIX):
                continue
            if _control(value):
                raise _unsendable(f"its header {shown(name)} contains control characters")
            headers[name] = cloudevents.header_value(value) if name == ORDERING_HEADER else value
        # Quoted, since NATS trims values: two ids must never become one.
        headers[MESSAGE_ID] = quote(self._msg_id.fill(claim, self._box), safe="!#$&'()*+,/:;=?@[]~")
        if REASON_HEADER in headers:
            headers[MESSAGE_ID] += " dead"  # the same stream may hold the event itself
        size = VERSION_LINE + len(payload)
        size += sum(len(name) + len(value.encode()) + len(": \r\n") for name, value in headers.items())
        return Message(place, subject, headers, payload, size, claim.attempts)


def is_subject(subject: str) -> bool:
    """Whether events can be published to a subject. `$` would reach the API of JetStream."""
    return bool(_is_subject(subject)) and len(subject.encode()) <= LONGEST_SUBJECT


def _unsendable(problem: str) -> Reject:
    return Reject(f"this event cannot be sent to NATS: {problem}", kind="not for NATS")
