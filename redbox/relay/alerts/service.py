"""The service of a relay that sends alerts when a condition of its box changes.

One relay of a box leads: it observes the conditions, and notes in the box which of them an alert was sent for. So each
change is sent once, however many relays there are, and the next leader knows what was sent. An alert is noted after it
was sent: if the leader ends in between, it is sent again. Dead events are reported by the relay that marked them.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final
from uuid import uuid4

from redbox.box import Box
from redbox.box.desk.marks import Marks
from redbox.errors import EmbeddedServerFailed, RedboxError, StoreError, StoreUnavailable
from redbox.events import Claim, from_ms, to_ms
from redbox.fingerprints import fingerprint, group_id
from redbox.publishers.base import Publisher
from redbox.relay.alerts.conditions import ALERT_AGE, Alert, Breakers, Condition, observe
from redbox.relay.alerts.sender import PAUSES, Sender
from redbox.relay.digest import Digest
from redbox.relay.services import Prompted

logger = logging.getLogger("redbox.relay")

ALERT_EVERY: Final = 2.0
LEAD_SECONDS: Final = 30.0  # an alert is sent, or given up for now, in less
NOTE_SECONDS: Final = 86_400.0  # how long a condition is remembered that nobody observes
PROLONG_SECONDS: Final = 3600.0
COOL_OFF: Final = 60.0  # seconds without an attempt after the target did not take an alert
GROUP_SECONDS: Final = 7 * 86_400.0  # an error group without a dead event for this long is new again
SEEN_SECONDS: Final = 600.0  # how long a relay remembers a group before it looks again
MOST_SEEN: Final = 1000
MOST_WAITING: Final = 100  # groups whose alert is to be sent
GROUPS_PER_HOUR: Final = 20  # alerts of one relay about error groups
OUTAGE: Final = 2  # calls in a row that the store did not answer
ATTEMPTS_USED_UP: Final = "attempts used up"
#: Dead events of these types are not reported: they may be alerts that were put into a box.
OWN_TYPES: Final = "redbox."
_AWAY: Final = (StoreUnavailable, EmbeddedServerFailed)


class Alerts(Prompted):
    """Sends the alerts of one relay. It never raises because of its target."""

    every = ALERT_EVERY

    def __init__(
        self,
        box: Box,
        name: str,
        publisher: Publisher,
        digest: Digest,
        *,
        alert_age: float = ALERT_AGE,
        pauses: Sequence[float] = PAUSES,
    ) -> None:
        super().__init__()
        self._box = box
        self._marks = Marks(box)
        self._sender = Sender(publisher, box.name, name, digest, pauses)
        self._alert_age = alert_age
        self._token = uuid4().hex
        self._leads_until = -float("inf")
        self._noted: dict[str, _Note] = {}  # by condition, as far as they were read since it leads
        self._breakers = Breakers()
        self._quiet_until = -float("inf")
        self._dead: dict[str, _DeadEvent] = {}  # by group, to be reported
        self._seen: OrderedDict[str, float] = OrderedDict()  # group → when to look again
        self._group_alerts: list[float] = []  # when they were sent
        self._outage = _Outage()

    # --- dead events ---------------------------------------------------------------------------------------------

    def marked_dead(self, claim: Claim, reason: str) -> None:
        """An event was marked DEAD. Only remembers it."""
        error = fingerprint(reason or ATTEMPTS_USED_UP)
        group, now = group_id(error), time.monotonic()
        if claim.event.event_type.startswith(OWN_TYPES) or self._seen.get(group, now) > now:
            return
        if group not in self._dead and len(self._dead) < MOST_WAITING:
            self._dead[group] = _DeadEvent(claim, reason or ATTEMPTS_USED_UP, datetime.now(UTC))
            self.run_soon()

    # --- running -------------------------------------------------------------------------------------------------

    async def run_once(self) -> None:
        try:
            await self._look()
        except _AWAY as error:
            await self._store_failed(error)
            raise
        except StoreError:
            raise
        except Exception:  # a defect here must not end the relay
            logger.exception("alerts could not be sent")

    async def _look(self) -> None:
        leads = await self._lead()
        await self._store_answered()
        await self._report_groups()
        if not leads:
            self._noted.clear()
            self._breakers = Breakers()
            return
        stats = await self._box.stats()
        for condition in observe(stats, self._alert_age, self._breakers):
            await self._compare(condition)

    async def leave(self) -> None:
        """Lets another relay lead at once, and closes the target."""
        with suppress(RedboxError):
            await self._marks.remove("alerts", self._token)
        await self._sender.aclose()

    async def _lead(self) -> bool:
        """Whether this relay leads; it keeps leading by calling this again."""
        asked = time.monotonic()
        if await self._marks.set("alerts", self._token, LEAD_SECONDS) != self._token:
            self._leads_until = -float("inf")
            return False
        self._leads_until = asked + LEAD_SECONDS
        return True

    # --- conditions ----------------------------------------------------------------------------------------------

    async def _compare(self, condition: Condition) -> None:
        """Sends an alert if the condition is not as it was noted."""
        mark = f"alert:{condition.name}"
        note = self._noted.get(mark)
        if note is None:
            note = self._noted[mark] = _Note(await self._marks.read(mark))
        if note.text and time.monotonic() >= note.prolong_at:  # until its end was taken, even if that takes days
            await self._marks.set(mark, note.text, NOTE_SECONDS)
            note.prolong_at = time.monotonic() + PROLONG_SECONDS
        if condition.holds is None:
            return
        if condition.holds:
            if not note.text and await self._send(condition.begun):
                text = str(to_ms(condition.begun.since))
                self._noted[mark] = _Note(await self._marks.set(mark, text, NOTE_SECONDS))
        elif note.text and await self._send(condition.ended):
            await self._marks.remove(mark, note.text)
            self._noted[mark] = _Note("")

    async def _send(self, alert: Alert) -> bool:
        """Sends an alert, if this relay still leads. After a failure none is sent for a while."""
        if time.monotonic() < self._quiet_until or not await self._lead():
            return False
        return await self._send_now(alert)

    async def _send_now(self, alert: Alert) -> bool:
        if await self._sender.send(alert):
            return True
        self._quiet_until = time.monotonic() + COOL_OFF
        return False

    # --- error groups --------------------------------------------------------------------------------------------

    async def _report_groups(self) -> None:
        for group in list(self._dead):
            if time.monotonic() < self._quiet_until or not self._may_report():
                return  # the others are reported later
            if await self._report_group(group, self._dead[group]):
                del self._dead[group]
                self._seen[group] = time.monotonic() + SEEN_SECONDS
                self._seen.move_to_end(group)
                if len(self._seen) > MOST_SEEN:
                    self._seen.popitem(last=False)

    async def _report_group(self, group: str, event: _DeadEvent) -> bool:
        """Sends an alert for a group that is new to the box. Returns whether the group needs no alert any more."""
        known, sending = f"alert:group:{group}", f"alert:sending:{group}"
        if await self._prolong_group(known):
            return True
        if await self._marks.set(sending, self._token, LEAD_SECONDS) != self._token:
            return False  # another relay sends it now
        if await self._prolong_group(known):  # another relay has just sent it
            return True
        if not await self._send_now(event.alert(group)):
            return False
        self._group_alerts.append(time.monotonic())
        if len(self._group_alerts) == GROUPS_PER_HOUR:
            logger.warning("%d new error groups within an hour: further ones are reported later", GROUPS_PER_HOUR)
        await self._marks.set(known, "known", GROUP_SECONDS)
        await self._marks.remove(sending, self._token)
        return True

    async def _prolong_group(self, known: str) -> bool:
        if not await self._marks.read(known):
            return False
        await self._marks.prolong(known, "known", GROUP_SECONDS)
        return True

    def _may_report(self) -> bool:
        now = time.monotonic()
        self._group_alerts = [at for at in self._group_alerts if now - at < 3600]
        return len(self._group_alerts) < GROUPS_PER_HOUR

    # --- the store -----------------------------------------------------------------------------------------------

    async def _store_failed(self, error: Exception) -> None:
        """Without the store relays cannot agree: the one that led when it went away sends the alert."""
        outage = self._outage
        if not outage.failures:
            outage.since, outage.led = datetime.now(UTC), time.monotonic() < self._leads_until
        outage.failures, outage.over = outage.failures + 1, None
        if outage.failures >= OUTAGE and outage.led and not outage.sent and time.monotonic() >= self._quiet_until:
            text = f"the store of box {self._box.name} is not reachable: {error}"
            outage.sent = await self._send_now(Alert("redbox.store.unreachable", text, outage.since))

    async def _store_answered(self) -> None:
        """The end of an outage is sent until the target takes it."""
        if self._outage.sent:
            text = f"the store of box {self._box.name} is reachable again"
            self._outage.over = self._outage.over or datetime.now(UTC)
            alert = Alert("redbox.store.reachable", text, self._outage.over)
            if time.monotonic() < self._quiet_until or not await self._send_now(alert):
                return
        self._outage = _Outage()


class _Note:
    """What the box says about a condition: since when it holds, in ms; empty if no alert was sent for it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.prolong_at = time.monotonic() + PROLONG_SECONDS


class _DeadEvent:
    """The first dead event of a group that this relay saw."""

    def __init__(self, claim: Claim, reason: str, at: datetime) -> None:
        self._event_id, self._event_type = claim.event_id, claim.event.event_type
        self._reason = reason
        self._at = at

    def alert(self, group: str) -> Alert:
        text = f"event {self._event_id} of type {self._event_type} is the first DEAD one of error group {group}: "
        return Alert("redbox.error_group.new", text + self._reason, self._at)


class _Outage:
    """The current outage of the store, if there is one."""

    def __init__(self) -> None:
        self.failures = 0
        self.since = from_ms(0)
        self.over: datetime | None = None  # the store answers again, and the alert was not taken yet
        self.led = self.sent = False
