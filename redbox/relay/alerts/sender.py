"""Sends alerts to their target: a few times if need be, and never for long."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import anyio

from redbox.errors import Reject
from redbox.events import Claim, Event
from redbox.ids import new_id
from redbox.publishers.base import Publisher
from redbox.relay.alerts.conditions import Alert
from redbox.relay.digest import Digest
from redbox.relay.outcomes.error_text import error_text

PAUSES: Final = (1.0, 3.0)  # seconds between the attempts for one alert
TIME_LIMIT: Final = 5.0  # seconds of one attempt


class Sender:
    """Publishes alerts of one relay. A target that hangs is left alone until its call ends."""

    def __init__(
        self, publisher: Publisher, box: str, relay: str, digest: Digest, pauses: Sequence[float] = PAUSES
    ) -> None:
        self._publisher = publisher
        self._box = box
        self._relay = relay
        self._digest = digest
        self._pauses = pauses
        self._is_open = False
        self._call: asyncio.Task[None] | None = None

    async def send(self, alert: Alert) -> bool:
        """Returns whether the target took the alert."""
        claim = self._claim(alert)
        for pause in (*self._pauses, None):
            problem: BaseException | None
            try:
                problem = await self._attempt(claim)
            except Exception as error:
                problem = error
            if problem is None:
                return True
            self._digest.write(
                logging.WARNING, "alert", f"the alert {alert.event_type} was not sent", error_text(problem)
            )
            if pause is None or isinstance(problem, Reject):
                break
            await anyio.sleep(pause)
        return False

    async def _attempt(self, claim: Claim) -> BaseException | None:
        if self._call is not None and not self._call.done():
            return TimeoutError("an earlier call of the target has not returned yet")
        self._call = asyncio.create_task(self._publish(claim))
        try:
            await asyncio.wait((self._call,), timeout=TIME_LIMIT)
        finally:
            if not self._call.done():
                self._call.cancel()  # and not awaited: it may ignore that
        if not self._call.done():
            return TimeoutError(f"the target did not return within {TIME_LIMIT:g} s")
        return asyncio.CancelledError() if self._call.cancelled() else self._call.exception()

    async def _publish(self, claim: Claim) -> None:
        if not self._is_open:
            await self._publisher.open(self._box)
            self._is_open = True
        await self._publisher.publish(claim)

    def _claim(self, alert: Alert) -> Claim:
        """The alert as publishers take it. It is in no box, so the times are those of this machine."""
        now, event_id = int(time.time() * 1000), new_id()
        document: dict[str, Any] = {
            "box": self._box,
            "relay": alert.relay or self._relay,
            "text": alert.text,
            "since": alert.since,
        }
        payload, content_type = Event(alert.event_type, document).encode()
        return Claim(
            event=Event(alert.event_type, payload, event_id=event_id, content_type=content_type),
            event_id=event_id,
            number=1,
            claimed_by=self._relay,
            attempts=1,
            excused=0,
            exhausted=False,
            suspect=False,
            created_ms=now,
            due_ms=now,
            claimed_ms=now,
            lease_until_ms=now + int(TIME_LIMIT * 1000),
        )

    async def aclose(self) -> None:
        if self._is_open:
            self._is_open = False
            with suppress(Exception):
                await self._publisher.aclose()
