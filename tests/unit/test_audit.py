"""The rules of a box: for each rule, a case that breaks this rule and no other."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from redbox import Event
from redbox.audit.rules import (
    HISTORY,
    RULES,
    SUSPECT_FROM,
    Problem,
    check_body,
    check_event,
    check_head,
    check_member,
)
from redbox.audit.snapshots import SORTED_SETS, EventSnapshot, KeyMember, KeyPage, read_events, read_keys
from redbox.store.codec import encode_event
from redbox.store.scripts.replies import START, Examined, ExaminedEvent, ExaminedKey, ExaminedMember, Position

pytestmark = pytest.mark.req("SP-9")
LUA = Path(__file__).parents[2] / "lua"
NOW = 1_700_000_000_000


def an_event(state: str = "PENDING", /, **changes: Any) -> EventSnapshot:
    """A sound event, with changes to its fields or to the snapshot itself."""
    fields = {"state": state, "event_type": "n", "created_at": str(NOW)}
    index = {"PENDING": "pending", "CLAIMED": "claimed", "PUBLISHED": "published", "DEAD": "dead"}[state]
    if state != "PENDING":
        fields |= {"claim": "3", "claimed_at": str(NOW), "claimed_by": "relay-1", "attempts": "1"}
    fields |= {"PUBLISHED": {"published_at": str(NOW)}, "DEAD": {"died_at": str(NOW)}}.get(state, {})
    scores = {index: float(NOW)}
    whole = EventSnapshot("e", fields, scores, 20, 0, None, None, None, False, claims_made=3, line_places_given=5)
    for name, value in changes.items():
        if name in EventSnapshot.__struct_fields__:
            setattr(whole, name, value)
        elif value is None:
            del fields[name]
        else:
            fields[name] = value
    return whole


def in_line(state: str = "PENDING", /, index: str = "pending", **changes: Any) -> EventSnapshot:
    given = {"ordering_key": "k", "line_place": 1.0, "line_head": "e", "scores": {index: float(NOW)}} | changes
    return an_event(state, **given)


def retried(**changes: Any) -> EventSnapshot:
    later = NOW + 500
    given = {"attempts": "1", "available_at": str(later), "scores": {"pending": float(later), "retries": float(later)}}
    return an_event(**given | changes)


GONE = EventSnapshot("e", {}, {}, 0, 0, None, None, None, False, claims_made=3, line_places_given=5)

SOUND = {
    "pending": an_event(),
    "scheduled": an_event(available_at=str(NOW + 9), scores={"pending": NOW + 9.0}),
    "claimed": an_event("CLAIMED", scores={"claimed": NOW + 30_000.0}),
    "published": an_event("PUBLISHED"),
    "dead": an_event("DEAD"),
    "retried": retried(),
    "suspect": retried(expiries="2", scores={"suspect": NOW + 500.0, "retries": NOW + 500.0}),
    "head": in_line(),
    "claimed head": in_line("CLAIMED", index="claimed"),
    "waiting": in_line(index="waiting", line_head="other"),
    "replayed and waiting": in_line(index="waiting", line_head="other", attempts="1"),
    "head of a paused key": in_line(index="waiting", key_paused=True),
    "claimed head of a paused key": in_line("CLAIMED", index="claimed", key_paused=True),
    "dead head": in_line("DEAD", index="dead"),
    "unique": an_event(unique_key="u", unique_score=0.0),
    "unique, retried": retried(unique_key="u", unique_score=NOW + 500.0),
    "unique, claimed": an_event("CLAIMED", unique_key="u", unique_score=math.inf),
    "unique, published": an_event("PUBLISHED", unique_key="u"),
    "gone": GONE,
}

BROKEN = [
    ("fields", an_event(state="ASLEEP"), "state is 'ASLEEP'"),
    ("fields", an_event(created_at=None), "has no created_at"),
    ("fields", an_event(event_type=None), "has no event_type"),
    ("fields", an_event(attempts="many"), "attempts is 'many', not a whole number"),
    ("fields", an_event(created_at="9" * 15), "created_at is 999999999999999, later than the year 9999"),
    ("index", an_event(scores={}), "is in no index, not in exactly one"),
    ("index", an_event(scores={"pending": NOW, "dead": NOW}), "is in pending and dead, not in exactly one"),
    ("state", an_event(scores={"claimed": NOW}), "is PENDING, but in claimed"),
    ("score", an_event(scores={"pending": NOW + 1.0}), f"has score {NOW + 1} in pending, but available_at {NOW}"),
    ("score", an_event("DEAD", scores={"dead": 1.0}), f"has score 1 in dead, but died_at {NOW}"),
    ("suspect", retried(expiries="2"), "is in pending after 2 expired leases in a row"),
    ("suspect", an_event(scores={"suspect": float(NOW)}), "is in suspect after 0 expired leases in a row"),
    ("times", an_event(died_at=str(NOW)), "died_at is set in state PENDING"),
    ("times", an_event("PUBLISHED", published_at=None), "published_at is missing in state PUBLISHED"),
    ("claim", an_event("CLAIMED", claimed_by=None, claim=None), "is CLAIMED without claim, claimed_by"),
    ("claim", an_event("CLAIMED", claim="4"), "has claim number 4, but only 3 were given out"),
    ("attempts", an_event("CLAIMED", excused="2"), "2 attempts are excused, but 1 were made"),
    ("attempts", retried(attempts="1", earlier_attempts="2"), "2 attempts were made before its replay, but 1 in all"),
    ("history", an_event(history_length=9), "has a history of 9, more than 8"),
    ("retries", retried(scores={"pending": NOW + 500.0}), f"nothing in retries, expected score {NOW + 500}"),
    ("retries", retried(scores={"pending": NOW + 500.0, "retries": 1.0}), "score 1 in retries"),
    ("retries", an_event("DEAD", scores={"dead": NOW, "retries": 1.0}), "score 1 in retries, expected nothing"),
    ("line", in_line(line_place=None, line_head="other", index="waiting"), "is live, but not in its line"),
    ("line", in_line(line_place=6.0), "has place 6 in its line, but only 5 were given out"),
    ("line", in_line(line_place=4.0, seq="3"), "has place 4 in its line, but seq 3"),
    ("head", in_line(index="waiting"), "is the head of its line, but waits"),
    ("head", in_line(line_head="other"), "is in pending behind the head"),
    ("head", in_line(key_paused=True), "is in pending, but its ordering_key is paused"),
    ("head", in_line("CLAIMED", index="claimed", line_head="other"), "is in claimed behind the head"),
    ("head", an_event(scores={"waiting": NOW}), "is in waiting, but has no ordering_key"),
    ("unique", an_event(unique_key="u"), "nothing at its unique_key, expected score 0"),
    ("unique", an_event("CLAIMED", unique_key="u", unique_score=0.0), "score 0 at its unique_key, expected score inf"),
    ("unique", retried(unique_key="u", unique_score=0.0), f"score 0 at its unique_key, expected score {NOW + 500}"),
    ("body", an_event(body_bytes=0), "has no body"),
    ("orphan", msgspec.structs.replace(GONE, scores={"dead": 1.0}), "is in dead, but there is no event"),
    ("orphan", msgspec.structs.replace(GONE, scores={"retries": 1.0}), "is in retries, but there is no event"),
    ("orphan", msgspec.structs.replace(GONE, body_bytes=9), "has a body, but there is no event"),
    ("orphan", msgspec.structs.replace(GONE, history_length=1), "has a history, but there is no event"),
    ("lost", msgspec.structs.replace(GONE, scores={"lost": 1.0}), "a claim found its id without a matching event"),
]  # fmt: skip


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_event_has_no_problem(name: str):
    assert check_event(SOUND[name]) == []


@pytest.mark.parametrize(("rule", "event", "sentence"), BROKEN)
def test_an_event_that_breaks_a_rule_is_reported_for_that_rule(rule: str, event: EventSnapshot, sentence: str):
    (problem,) = check_event(event)
    assert (problem.rule, problem.event_id) == (rule, "e")
    assert sentence in problem.sentence
    assert str(problem).startswith("e: ")


KEYED = [
    ("line", KeyMember("e", "PENDING", "k"), None),
    ("line", KeyMember("e", "CLAIMED", "k"), None),
    ("line", KeyMember("head", "DEAD", "k"), None),
    ("line", KeyMember("e", "DEAD", "k"), ("line", "is DEAD, but still in line 'k'")),
    ("line", KeyMember("head", "PUBLISHED", "k"), ("line", "is PUBLISHED, but still in line 'k'")),
    ("line", KeyMember("e", "PENDING", "other"), ("line", "is in line 'k', but its ordering_key is 'other'")),
    ("line", KeyMember("e", None, None), ("orphan", "is in line 'k', but there is no event")),
    ("unique", KeyMember("e", "PENDING", "k"), None),
    ("unique", KeyMember("head", "DEAD", "k"), ("unique", "is DEAD, but still in unique_key 'k'")),
    ("unique", KeyMember("e", "CLAIMED", None), ("unique", "is in unique_key 'k', but its unique_key is None")),
    ("unique", KeyMember("e", None, None), ("orphan", "is in unique_key 'k', but there is no event")),
]


@pytest.mark.parametrize(("kind", "member", "wrong"), KEYED)
def test_the_members_of_a_key(kind: str, member: KeyMember, wrong: tuple[str, str] | None):
    expected = [] if wrong is None else [Problem(wrong[0], member.event_id, "k", wrong[1])]
    assert check_member(kind, "k", "head", member) == expected


@pytest.mark.parametrize(
    ("head", "state", "blocked", "sentence"),
    [
        ("e", "PENDING", False, None),
        ("e", "DEAD", True, None),
        (None, None, False, None),
        ("e", "DEAD", False, "is DEAD and the head of line 'k', which is not blocked"),
        ("e", "CLAIMED", True, "line 'k' is blocked, but has a head that is CLAIMED"),
        ("e", None, True, "line 'k' is blocked, but has a head that is missing"),
        (None, None, True, "line 'k' is blocked, but has no events"),
    ],
)
def test_a_line_is_blocked_only_by_a_dead_head(
    head: str | None, state: str | None, blocked: bool, sentence: str | None
):
    found = check_head("k", KeyPage(False, START, head, state, blocked, False, []))
    assert found == ([] if sentence is None else [Problem("blocked", head, "k", sentence)])
    if found and head is None:
        assert str(found[0]) == f"k: {sentence}"


def test_bodies():
    keyed = Event("n", b"x", event_id="e", ordering_key="k", unique_key="u", unique_scope="UNTOUCHED")
    body = encode_event(keyed, 1000, {}).body
    fields = {"ordering_key": "k", "unique_key": "u", "unique_scope": "UNTOUCHED"}
    assert check_body(an_event(**fields), body) == []
    assert check_body(an_event(), encode_event(Event("n", event_id="e"), 1000, {}).body) == []
    (other,) = check_body(an_event(**fields, event_type="m"), body)
    assert (other.rule, other.sentence) == ("body", "event_type is 'm', but 'n' in its body")
    assert [problem.rule for problem in check_body(an_event(), body)] == ["body"] * 3
    assert [problem.rule for problem in check_body(an_event(), b"\xc1")] == ["damaged"]
    (newer,) = check_body(an_event(), b"\x93\x02\xa1x\xc0")
    assert newer.rule == "newer"
    assert "upgrade this redbox" in newer.sentence


def test_every_rule_is_broken_by_some_case():
    keyed = {wrong[0] for _, _, wrong in KEYED if wrong}
    elsewhere = {"blocked", "damaged", "newer", "foreign", "paused"}  # above, and the last two in the conformance suite
    assert {rule for rule, _, _ in BROKEN} | keyed | elsewhere == set(RULES)


def test_replies_are_read():
    event = ExaminedEvent(
        b"e\xff", [b"state", b"DEAD"], [None, b"5", *[None] * 6], 9, 1, None, b"2", b"h", b"inf", b"inf"
    )
    scores = {"waiting": 5.0}
    expected = EventSnapshot("e\\xff", {"state": "DEAD"}, scores, 9, 1, 2.0, "h", math.inf, True, 7, 2, b"e\xff")
    assert read_events(Examined(7, 2, [event])) == [expected]
    found = [ExaminedMember(b"a", None, None), ExaminedMember(b"b", b"DEAD", b"k")]
    replies = [
        ExaminedKey(True, Position(b"5", b"b"), b"a", None, None, None, found),
        ExaminedKey(True, START, None, None, None, None, []),
    ]
    members = [KeyMember("a", None, None), KeyMember("b", "DEAD", "k")]
    first, second = read_keys(replies)
    assert first == KeyPage(True, Position(b"5", b"b"), "a", None, False, False, members)
    assert second == KeyPage(True, START, None, None, False, False, [])
    assert (first.was_read, second.was_read) == (True, False)


def test_the_script_and_the_rules_have_the_same_constants():
    sets = re.search(r"^local SORTED_SETS = \{ (.*) \}$", (LUA / "examine.lua").read_text(), re.MULTILINE)
    assert sets is not None
    assert tuple(re.findall(r'"(\w+)"', sets[1])) == SORTED_SETS
    assert f'HISTORY, OLDEST = {HISTORY}, "-{HISTORY}"\n' in (LUA / "include" / "add_history.lua").read_text()
    assert f"SUSPECT_FROM = {SUSPECT_FROM}\n" in (LUA / "include" / "enqueue.lua").read_text()
