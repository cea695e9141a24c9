"""Unit tests of an application that uses redbox: a real box in memory, a real relay, and a clock that tests can move.

pytest examples/test_reminders.py

The fixture `redbox_box` comes with `pip install 'redbox-outbox[testing]'`; async tests that use it need no plugin.
"""

from datetime import timedelta

from redbox import Backoff, Box, Event, Reject, Relay, State
from redbox.testing import advance

# --- the application -----------------------------------------------------------------------------------------------


async def remind(box: Box, user: str, after: timedelta) -> str:
    receipt = await box.put(Event("reminder", {"user": user}, delay=after, unique_key=f"reminder-{user}"))
    return receipt.event_id


class Mail:
    """A fake mail sender that raises the given errors first."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.sent: list[str] = []

    async def send(self, event: Event) -> None:
        if self._errors:
            raise self._errors.pop(0)
        self.sent.append(event.decode()["user"])


def reminder_relay(box: Box, mail: Mail) -> Relay:
    """Three attempts, ten minutes apart: the policy that these tests cover."""
    return Relay(box, mail.send, backoff=Backoff.fixed(timedelta(minutes=10)), attempts=3)


# --- its tests -----------------------------------------------------------------------------------------------------


async def test_a_reminder_is_sent_when_it_is_due(redbox_box: Box) -> None:
    mail = Mail()
    relay = reminder_relay(redbox_box, mail)
    await remind(redbox_box, "ada", timedelta(days=1))

    await relay.drain()  # publishes all due events, and returns
    assert mail.sent == []

    await advance(redbox_box, days=1)
    await relay.drain()
    assert mail.sent == ["ada"]


async def test_a_failure_is_retried_ten_minutes_later(redbox_box: Box) -> None:
    mail = Mail(ConnectionError("no route to the mail server"))
    relay = reminder_relay(redbox_box, mail)
    event_id = await remind(redbox_box, "ada", timedelta(0))

    await relay.drain()
    record = await redbox_box.get(event_id)
    assert record is not None
    assert record.state is State.PENDING
    assert record.last_error == "ConnectionError: no route to the mail server"

    await advance(redbox_box, minutes=9)
    await relay.drain()
    assert mail.sent == []

    await advance(redbox_box, minutes=1)
    await relay.drain()
    assert mail.sent == ["ada"]
    assert relay.summary().retried == 1


async def test_after_three_attempts_an_event_is_dead_until_it_is_replayed(redbox_box: Box) -> None:
    mail = Mail(*[ConnectionError("still no route")] * 3)
    relay = reminder_relay(redbox_box, mail)
    event_id = await remind(redbox_box, "ada", timedelta(0))

    for _ in range(3):
        await relay.drain()
        await advance(redbox_box, minutes=10)
    record = await redbox_box.get(event_id)
    assert record is not None
    assert (record.state, record.attempts) == (State.DEAD, 3)

    await advance(redbox_box, days=1)
    await relay.drain()
    assert mail.sent == []  # a dead event is never retried automatically

    await redbox_box.replay([event_id], why="the mail server is back")
    await relay.drain()
    assert mail.sent == ["ada"]


async def test_an_unknown_user_is_not_retried(redbox_box: Box) -> None:
    relay = reminder_relay(redbox_box, Mail(Reject("unknown user")))
    event_id = await remind(redbox_box, "nobody", timedelta(0))

    assert (await relay.drain()).dead == 1
    record = await redbox_box.get(event_id)
    assert record is not None
    assert (record.state, record.attempts, record.last_error) == (State.DEAD, 1, "unknown user")
