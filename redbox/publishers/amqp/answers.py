"""What the answers of a broker mean for an event."""

from __future__ import annotations

import re
import time
from typing import Final

from aiormq import exceptions
from pamqp.commands import Basic

from redbox.errors import NotPublished, Reject, Unavailable
from redbox.publishers.amqp.messages import Message
from redbox.publishers.base import growing_delay

#: RabbitMQ's reply to a body beyond its max_message_size.
_TOO_LARGE: Final = re.compile(r"message size (\d+) is larger than configured max size (\d+)")
#: RabbitMQ's reply to a routing key without permission. A long reply is cut off, and ends with three dots.
_TOPIC_REFUSED: Final = re.compile(
    r"ACCESS_REFUSED - .*?access to topic '(.*)(?:' in exchange '|(\.\.\.)\Z)", re.DOTALL
)
REMEMBERED_SECONDS: Final = 60.0
REMEMBERED_KEYS: Final = 1000
_NAMES: Final = {312: "NO_ROUTE", 313: "NO_CONSUMERS"}


class Refusals:
    """What the broker has refused: payloads beyond its max_message_size, and routing keys without permission.

    Brokers announce neither, and each refusal closes the channel for the other events too. So it is remembered for a
    minute: until then, such events are not sent.
    """

    def __init__(self) -> None:
        self._bytes, self._until = 0, 0.0
        self._keys: dict[str, tuple[float, str]] = {}

    def learn(self, error: BaseException, routing_key: str) -> None:
        """Remembers why the broker closed the channel, if it was for the payload or the routing key of an event."""
        limit, until = _limit(error), time.monotonic() + REMEMBERED_SECONDS
        if limit is not None:
            self._bytes, self._until = limit, until
        elif is_topic_refusal(error) and _is_refused(error, routing_key):
            while len(self._keys) >= REMEMBERED_KEYS:
                self._keys.pop(next(iter(self._keys)))
            self._keys[routing_key] = (until, _said(error))

    def check(self, size: int, routing_key: str) -> None:
        """Raises Reject if the broker would refuse a payload of `size` bytes, or the routing key."""
        if size > self._bytes and time.monotonic() < self._until:
            raise _too_large(size, self._bytes)
        if self._keys and routing_key in self._keys:
            until, said = self._keys[routing_key]
            if time.monotonic() < until:
                raise _refused(said)
            del self._keys[routing_key]


def _limit(error: BaseException) -> int | None:
    found = _TOO_LARGE.search(str(error))
    return int(found[2]) if found else None


def _too_large(size: int, limit: int) -> Reject:
    return Reject(f"the payload of {size:,} bytes is larger than the broker accepts: {limit:,}", kind="too large")


def is_topic_refusal(error: BaseException) -> bool:
    """Whether the broker has refused a routing key, and not the exchange."""
    return isinstance(error, exceptions.ChannelAccessRefused) and _TOPIC_REFUSED.search(_said(error)) is not None


def _is_refused(error: BaseException, routing_key: str) -> bool:
    """Whether it is this routing key that the broker has refused."""
    found = _TOPIC_REFUSED.search(_said(error))
    if found is None:
        return False
    return routing_key.startswith(found[1]) if found[2] else routing_key == found[1]


def _refused(said: str) -> Reject:
    return Reject(said, kind=said.partition(" ")[0], blames_target=True)


def _said(error: BaseException) -> str:
    return str(error.args[-1]) if error.args else ""


def _of_another(said: str) -> Unavailable:
    """The outcome of an event whose channel another event closed. It never counts: the broker has not judged it."""
    return Unavailable(f"the broker closed the channel because of another event: {said}", excuse=True)


def problem_of(error: BaseException, message: Message) -> NotPublished:
    """Converts an error of a publish."""
    failure = _problem(error, message)
    failure.__cause__ = error
    return failure


def waits(reason: str, message: Message) -> Unavailable:
    """The outcome of an event that its queue does not take at present. It never counts: other queues may take theirs
    meanwhile."""
    return Unavailable(reason, delay=growing_delay(message.attempts), excuse=True)


def _problem(error: BaseException, message: Message) -> NotPublished:
    said, size, routing_key = _said(error), len(message.body), message.routing_key
    match error:
        case exceptions.PublishError(frame=Basic.Return() as frame):
            name = _NAMES.get(frame.reply_code or 0, frame.reply_text)
            where = f"exchange {frame.exchange!r} routes it with the key {frame.routing_key!r} to no queue"
            return Reject(f"returned by the broker ({name}): {where}", kind=name, blames_target=True)
        case exceptions.DeliveryError():
            return waits("the broker refused the event (nack): a queue is full or has failed", message)
        case exceptions.ChannelNotFoundEntity() | exceptions.ChannelAccessRefused():
            if is_topic_refusal(error) and not _is_refused(error, routing_key):
                return _of_another(said)
            return _refused(said)
        case exceptions.ChannelPreconditionFailed():
            limit = _limit(error)
            if limit is not None:
                return _too_large(size, limit) if size > limit else _of_another(said)
            return NotPublished(f"the broker closed the channel, perhaps because of another event: {said}")
        case exceptions.AMQPChannelError():
            return NotPublished(f"the broker closed the channel: {said}")
        case exceptions.AMQPError() | OSError() | RuntimeError():
            return Unavailable(f"the connection to the broker was lost{f': {said}' if said else ''}")
        case _ if type(error) is Exception:  # so aiormq ends waiting confirms if the connection ends without an error
            return Unavailable("the connection to the broker was lost")
        case _:
            return NotPublished(f"{type(error).__name__}: {error}")
