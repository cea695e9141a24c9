"""What the answers of a broker mean for an event."""

from __future__ import annotations

import re
import time
from typing import Final

from aiormq import exceptions
from pamqp.commands import Basic

from redbox.errors import NotPublished, Reject, Unavailable

#: RabbitMQ's reply to a body beyond its max_message_size.
_TOO_LARGE: Final = re.compile(r"message size (\d+) is larger than configured max size (\d+)")
REMEMBERED_SECONDS: Final = 60.0
_NAMES: Final = {312: "NO_ROUTE", 313: "NO_CONSUMERS"}


class SizeLimit:
    """The max_message_size of the broker. No broker announces it, so it is known for a minute after a refusal: until
    then, events beyond it are not sent, and do not cost the others their channel."""

    def __init__(self) -> None:
        self._bytes, self._until = 0, 0.0

    def learn(self, error: BaseException) -> None:
        limit = _limit(error)
        if limit is not None:
            self._bytes, self._until = limit, time.monotonic() + REMEMBERED_SECONDS

    def check(self, size: int) -> None:
        """Raises Reject if the broker would refuse a payload of `size` bytes."""
        if size > self._bytes and time.monotonic() < self._until:
            raise _too_large(size, self._bytes)


def _limit(error: BaseException) -> int | None:
    found = _TOO_LARGE.search(str(error))
    return int(found[2]) if found else None


def _too_large(size: int, limit: int) -> Reject:
    return Reject(f"the payload of {size:,} bytes is larger than the broker accepts: {limit:,}", kind="too large")


def problem_of(error: BaseException, size: int) -> NotPublished:
    """Converts an error of a publish whose payload has `size` bytes."""
    failure = _problem(error, size)
    failure.__cause__ = error
    return failure


def _problem(error: BaseException, size: int) -> NotPublished:
    said = str(error.args[-1]) if error.args else ""
    match error:
        case exceptions.PublishError(frame=Basic.Return() as frame):
            name = _NAMES.get(frame.reply_code or 0, frame.reply_text)
            where = f"exchange {frame.exchange!r} routes it with the key {frame.routing_key!r} to no queue"
            return Reject(f"returned by the broker ({name}): {where}", kind=name, blames_target=True)
        case exceptions.DeliveryError():
            return Unavailable("the broker refused the event (nack): a queue is full or has failed")
        case exceptions.ChannelNotFoundEntity() | exceptions.ChannelAccessRefused():
            return Reject(said, kind=said.partition(" ")[0], blames_target=True)
        case exceptions.ChannelPreconditionFailed():
            limit = _limit(error)
            if limit is not None and size > limit:
                return _too_large(size, limit)
            return NotPublished(f"the broker closed the channel, perhaps because of another event: {said}")
        case exceptions.AMQPChannelError():
            return NotPublished(f"the broker closed the channel: {said}")
        case exceptions.AMQPError() | OSError() | RuntimeError():
            return Unavailable(f"the connection to the broker was lost{f': {said}' if said else ''}")
        case _ if type(error) is Exception:  # so aiormq ends waiting confirms if the connection ends without an error
            return Unavailable("the connection to the broker was lost")
        case _:
            return NotPublished(f"{type(error).__name__}: {error}")
