"""What a reply to a published message means for its event."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec
from nats.aio.msg import Msg

from redbox.arguments import shown
from redbox.errors import NotPublished, Reject, Unavailable
from redbox.publishers.base import growing_delay
from redbox.publishers.nats.messages import Message

logger = logging.getLogger("redbox.nats")

NO_RESPONDERS: Final = "503"
ANOTHER_STREAM: Final = 10060
FULL: Final = 10077

#: Error codes of JetStream: https://github.com/nats-io/nats-server/blob/main/server/errors.json
TOO_LARGE: Final = frozenset({10054, 10097})  # the message, its headers
UNAVAILABLE: Final = frozenset(
    {
        10008, 10009,  # the cluster has no leader, or is incomplete
        10002, 10023, 10028, 10047,  # too few resources of the account or the server, memory or disk
        10167,  # too many requests, from 2.11
        10039, 10076,  # not enabled for the account, or at all
        FULL,
    }
)  # fmt: skip
PER_SUBJECT: Final = "per subject exceeded"  # full for this subject only, with the code of a full stream


class _Error(msgspec.Struct):
    err_code: int = 0
    description: str = ""


class _Reply(msgspec.Struct):
    stream: str = ""
    seq: int = 0
    duplicate: bool = False
    error: _Error | None = None


_decode = msgspec.json.Decoder(_Reply).decode


class Answer(NamedTuple):
    """The outcome of one message, and whether the stream held it already."""

    outcome: NotPublished | None
    duplicate: bool = False


def answer(reply: Msg, message: Message, *, has_jetstream: bool) -> Answer:
    """Reads a reply. `has_jetstream` is what the server said about itself."""
    if reply.headers and reply.headers.get("Status") == NO_RESPONDERS:
        return Answer(_no_stream(message.subject, has_jetstream))
    try:
        found = _decode(reply.data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = _Reply()
    if found.error is not None:
        return Answer(_refusal(found.error, message))
    if found.stream and found.seq > 0:
        return Answer(None, found.duplicate)
    return Answer(NotPublished(f"the subject {shown(message.subject)} was answered, but not by a JetStream stream"))


def _no_stream(subject: str, has_jetstream: bool) -> NotPublished:
    if not has_jetstream:
        return Unavailable(
            f"no JetStream stream takes the subject {shown(subject)}: JetStream is not enabled on this NATS server"
        )
    return Reject(
        f"no JetStream stream takes the subject {shown(subject)}; create it: nats stream add NAME --subjects {subject} "
        "(or the stream has no leader at present: nats stream report)",
        kind="no stream",
        blames_target=True,
    )


def _refusal(error: _Error, message: Message) -> NotPublished:
    code, reason = error.err_code, f"JetStream: {error.description} ({error.err_code})"
    if code in TOO_LARGE:
        return Reject(reason, kind="too large")
    if code == ANOTHER_STREAM:
        return Reject(f"{reason}; see the option stream", kind="another stream", blames_target=True)
    if code in UNAVAILABLE and PER_SUBJECT not in error.description:
        # It never counts: another stream may take its events meanwhile.
        return Unavailable(reason, delay=growing_delay(message.attempts), excuse=True)
    return NotPublished(reason)


def unanswered(message: Message, seconds: float) -> Unavailable:
    """The failure of an event that was not acknowledged in time."""
    return Unavailable(
        f"NATS: no acknowledgement for the subject {shown(message.subject)} within {seconds:g} s: the server hangs; or "
        "the subject has subscribers but no stream takes it, or its stream was created with no_ack"
    )


def too_large(message: Message, limit: int) -> Reject:
    """The rejection of a message that the server would refuse by closing the connection."""
    return Reject(
        f"the message has {message.size:,} bytes with its headers; this NATS server accepts {limit:,} (max_payload)",
        kind="too large",
    )


def closed(why: Exception | None, redact: Callable[[str], str]) -> Unavailable:
    """The failure of an event whose connection was lost, or could not be made."""
    found = "the connection was closed" if why is None else str(why) or type(why).__name__
    return Unavailable(redact(f"NATS: {found.removeprefix('nats: ')}"))
