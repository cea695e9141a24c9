"""A producer of librdkafka on an event loop: one thread receives the delivery reports of all calls."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as KafkaProducer

from redbox.errors import NotPublished, Reject, Unavailable
from redbox.publishers.calls import Call
from redbox.publishers.kafka.failures import ALL_DOWN, BatchRefused, failure

POLL_SECONDS: Final = 0.1
CLOSE_SECONDS: Final = 5.0
DOWN_SECONDS: Final = 3.0  # longer than librdkafka waits between two attempts to connect

logger = logging.getLogger("redbox.kafka")

Redact = Callable[[str], str]


class Record(NamedTuple):
    """What is sent for one event of a call; `place` is its index in the call."""

    place: int
    topic: str
    key: bytes | None
    value: bytes
    headers: list[tuple[str, str | bytes | None]]
    attempts: int


class Report(NamedTuple):
    """A delivery report: `error` is None for a record that the cluster acknowledged."""

    call: Call
    record: Record
    error: KafkaError | None


class Producer:
    """Sends records, and settles their calls on the event loop that created it.

    If all brokers are down, waiting records are purged, so that an outage is reported at once and not after the time
    limit of a record. librdkafka reports that they are down, but in some outages only once; until a record is
    acknowledged, later ones are purged after three seconds. After a fatal error it can no longer be used (`is_usable`).
    """

    def __init__(self, config: Mapping[str, Any], redact: Redact) -> None:
        self._loop = asyncio.get_running_loop()
        self._redact = redact
        self._reports: deque[Report] = deque()
        self._down: str | None = None
        self._last_problem: str | None = None
        self._purge = False
        self._waiting_since = 0.0  # when the oldest waiting record was sent, or the latest purge
        self._stopping = False
        self._fatal = False
        self._pid = os.getpid()
        self._producer = KafkaProducer({**config, "error_cb": self._on_error, "logger": _Log(redact)})
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name="redbox-kafka", daemon=True)
        self._thread.start()

    @property
    def is_usable(self) -> bool:
        return not (self._stopping or self._fatal) and self._pid == os.getpid()

    async def send(self, records: Sequence[Record], outcomes: list[BaseException | None]) -> None:
        """Sends records and sets an outcome for each: returns when each is acknowledged or failed."""
        if not records:
            return
        with suppress(RuntimeError):  # the thread has just closed it
            if not len(self._producer):
                self._waiting_since = time.monotonic()
        call = Call(outcomes, len(records))
        for record in records:
            outcomes[record.place] = Unavailable("Kafka: the producer was closed")  # until its report arrives
        for record in records:
            try:
                report = self._reporter(call, record)
                self._producer.produce(
                    record.topic, record.value, record.key, headers=record.headers, on_delivery=report
                )
            except BufferError:
                call.settle(record.place, _queue_full())
            except KafkaException as error:
                found = self._failure(error.args[0], record)
                if isinstance(found, BatchRefused):  # there is no batch yet: the record itself was refused
                    found = Reject(f"{error.args[0].str()}; see the option message.max.bytes", kind="too large")
                call.settle(record.place, found)
            except RuntimeError:  # the thread has just closed it
                call.settle(record.place, outcomes[record.place])
        await asyncio.wait([call.done, self._ended], return_when=asyncio.FIRST_COMPLETED)

    def _reporter(self, call: Call, record: Record) -> Callable[[KafkaError | None, Any], None]:
        def report(error: KafkaError | None, _message: Any) -> None:
            self._reports.append(Report(call, record, error))

        return report

    def stop(self) -> None:
        """Ends the thread, and with it the producer, soon."""
        self._stopping = True

    async def close(self) -> None:
        """Ends the thread and the producer; records that still wait are purged. Waits for at most five seconds."""
        self.stop()
        if self._pid == os.getpid():
            await asyncio.wait([self._ended], timeout=CLOSE_SECONDS)

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._producer.poll(POLL_SECONDS)
                if self._purge or self._is_still_down():
                    self._purge = False
                    self._waiting_since = time.monotonic()
                    self._producer.purge(blocking=False)
                if self._reports:
                    self._tell(self._settle)
        except KafkaException as error:  # fatal
            self._down = error.args[0].str()
        finally:
            self._stopping = True
            self._end()

    def _is_still_down(self) -> bool:
        waited = time.monotonic() - self._waiting_since
        return self._down is not None and waited > DOWN_SECONDS and len(self._producer) > 0

    def _end(self) -> None:
        with suppress(KafkaException):
            self._producer.purge()
            self._producer.poll(0)
        self._producer.close()
        self._tell(self._finish)

    def _finish(self) -> None:
        self._settle()
        if not self._ended.done():
            self._ended.set_result(None)

    def _tell(self, call: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed, and nobody waits
            self._loop.call_soon_threadsafe(call)

    def _settle(self) -> None:
        while self._reports:
            call, record, error = self._reports.popleft()
            if error is None:
                self._down = None
            call.settle(record.place, None if error is None else self._failure(error, record))

    def _failure(self, error: KafkaError, record: Record) -> NotPublished:
        if error.fatal():
            self._fatal = True
        found = failure(error, record.topic, self._down, record.attempts)
        found.args = (self._redact(found.message), *found.args[1:])
        return found

    def _on_error(self, error: KafkaError) -> None:
        """Called in the thread, for errors that belong to no record."""
        if error.fatal():
            self._fatal = True
        if error.code() != ALL_DOWN:
            self._last_problem = error.str()
            return
        self._down = self._last_problem or error.str()
        self._purge = True


def _queue_full() -> Unavailable:
    return Unavailable(
        "Kafka: the local queue of librdkafka is full; see the option queue.buffering.max.messages", excuse=True
    )


class _Log:
    """Passes the log of librdkafka on as debug messages: the relay reports failures itself."""

    def __init__(self, redact: Redact) -> None:
        self._redact = redact

    def log(self, _level: int, message: str, *args: Any) -> None:
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("%s", self._redact(message % args if args else message))
