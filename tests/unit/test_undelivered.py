"""The events that a drain tried and has not delivered."""

from __future__ import annotations

from redbox.relay.report import MOST_UNDELIVERED, Undelivered


def test_an_event_is_undelivered_until_it_is_published_or_dead():
    events = Undelivered()
    assert (events.in_words(), len(events)) == ("", 0)
    for event_id in ("b", "a", "b"):
        events.add(event_id, f"no {event_id}")
    assert events.in_words() == "2 events could not be delivered: a, b; the last error was: no b"
    events.remove("a")
    events.remove("unknown")
    assert events.in_words() == "1 event could not be delivered: b; the last error was: no b"
    events.clear()
    assert not events


def test_memory_is_bounded_and_the_text_says_so():
    events = Undelivered()
    for number in range(5000):
        events.add(f"{number:04}", "no")
    assert len(events) == MOST_UNDELIVERED == 1000
    assert events.in_words().startswith("1,000 or more events could not be delivered: 0000, 0001, 0002 and others;")
    events.remove("0000")
    events.add("4999", "no")
    assert len(events) == 1000
