"""`redbox kill`, `release`, `reschedule` and `drop`."""

from __future__ import annotations

import json

import pytest

from redbox import Box, Event, Phase
from redbox.box.operate import operator_name
from redbox.cli.options import changes
from tests.cli.conftest import Redbox

DONE = {"kill": "killed", "release": "released", "reschedule": "rescheduled", "drop": "dropped"}
#: Action → the events of the scene on which it is possible, and the reason for the others.
POSSIBLE = {
    "kill": (("pending", "claimed"), "the event is already PUBLISHED or DEAD"),
    "release": (("claimed",), "the event is not CLAIMED"),
    "reschedule": (("pending",), "the event is not PENDING"),
    "drop": (("published", "dead"), "the event is neither PUBLISHED nor DEAD"),
}
ALL = ("pending", "claimed", "published", "dead")


async def one_in_each_state(box: Box) -> None:
    await box.put_many([Event("a", event_id=name) for name in ("published", "dead", "claimed")])
    claims = {claim.event_id: claim for claim in await box.claim("relay-1")}
    await box.ack(claims["published"])
    await box.kill(claims["dead"], reason="no")
    await box.put(Event("a", event_id="pending"))


@pytest.fixture
def scene(redbox: Redbox) -> Redbox:
    redbox.within(one_in_each_state)
    return redbox


def phases(redbox: Redbox) -> dict[str, int]:
    return {phase.value: n for phase, n in redbox.within(lambda box: box.stats()).phases.items() if n}


@pytest.mark.req("RO-3")
@pytest.mark.parametrize("action", POSSIBLE)
def test_every_id_gets_an_outcome(scene: Redbox, action: str):
    possible, reason = POSSIBLE[action]
    before = phases(scene)
    dry = scene.json(action, *ALL, "unknown", "--dry-run", code=1)
    assert phases(scene) == before
    assert scene.within(lambda box: box.operate.log()) == []
    done = scene.json(action, *ALL, "unknown", "--yes", "--why", "test", code=1)
    assert {**dry, "dry_run": False} == done
    assert (done["action"], done["done"], done["refused"]) == (action, len(possible), 5 - len(possible))
    found = {each["event_id"]: each["reason"] for each in done["events"]}
    assert found == {
        **{name: None if name in possible else reason for name in ALL},
        "unknown": "there is no such event",
    }
    (entry,) = scene.within(lambda box: box.operate.log())
    assert (entry.action, entry.who, entry.why) == (action, operator_name(), "test")
    assert (entry.count, set(entry.ids)) == (len(possible), set(possible))


@pytest.mark.req("RO-3")
@pytest.mark.parametrize("action", POSSIBLE)
def test_refused_events_are_listed_with_reasons(scene: Redbox, action: str):
    possible, reason = POSSIBLE[action]
    other = next(name for name in ALL if name not in possible)
    dry = scene(action, possible[0], other, "--dry-run", code=1).stdout.splitlines()
    assert dry[0] == f"1 event would be {DONE[action]}, 1 refused"
    assert dry[1].split() == ["ID", "OUTCOME"]
    assert f"would be {DONE[action]}" in dry[2]
    assert f"refused: {reason}" in dry[3]
    done = scene(action, possible[0], other, "--yes", code=1).stdout.splitlines()
    assert done[0] == f"1 event {DONE[action]}, 1 refused"
    assert done[2].split(maxsplit=1) == [other, reason]


@pytest.mark.req("RO-3")
def test_done_without_refusals(scene: Redbox):
    assert scene("kill", "pending", "--yes", "--who", "ada").stdout == "1 event killed\n"
    assert scene.json("show", "pending")["last_error"] == "killed by ada: "
    assert scene("drop", "pending", "dead", "--yes").stdout == "2 events dropped\n"
    assert phases(scene) == {"IN_FLIGHT": 1, "COMPLETED": 1}


@pytest.mark.req("RO-3")
def test_release_and_reschedule_with_a_time(scene: Redbox):
    assert scene("release", "claimed", "--delay", "1h", "--yes").stdout == "1 event released\n"
    assert scene("reschedule", "pending", "--delay", "2h", "--yes").stdout == "1 event rescheduled\n"
    assert phases(scene)["SCHEDULED"] == 1
    assert phases(scene)["RETRY_SCHEDULED"] == 1
    scene("reschedule", "claimed", "--yes")
    assert phases(scene)["AVAILABLE"] == 1
    scene("reschedule", "pending", "--at", "2030-01-31T12:00:00Z", "--yes")
    assert scene.json("show", "pending")["available_at"].startswith("2030-01-31T12:00:00")
    before = scene.within(lambda box: box.stats()).at
    scene("reschedule", "pending", "--at", "+1h", "--yes")
    assert scene.json("show", "pending")["available_at"] > before.isoformat()
    assert "either --delay or --at" in scene.error("reschedule", "x", "--at", "+1h", "--delay", "1", "--yes", code=2)


@pytest.mark.req("RO-3")
def test_ids_from_stdin(scene: Redbox):
    lines = "pending\n\n" + json.dumps({"event_id": "claimed", "payload": 1}) + "\n"
    done = scene.json("kill", "-", "dead", "--yes", input=lines, code=1)
    assert [(each["event_id"], each["outcome"]) for each in done["events"]] == [
        ("pending", "OK"), ("claimed", "OK"), ("dead", "NOTLIVE"),
    ]  # fmt: skip


@pytest.mark.req("RO-3")
def test_a_listing_can_be_piped(scene: Redbox):
    listed = scene("--json", "list", "--state", "dead").stdout
    assert scene("drop", "-", "--yes", input=listed).stdout == "1 event dropped\n"
    assert scene("drop", "-", "--yes", input="").stdout == "0 events dropped\n"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (b'{"id": 1}\n', "line 1 of stdin has no event_id"),
        (b"pending\n{nonsense\n", "line 2 of stdin is neither an id nor valid JSON"),
        (b"\xff\n", "line 1 of stdin is not UTF-8"),
    ],
)
def test_an_invalid_line_changes_nothing(scene: Redbox, lines: bytes, message: str):
    assert message in scene.error("kill", "-", "--yes", input=lines, code=2)
    assert phases(scene)["AVAILABLE"] == 1


@pytest.mark.req("RO-3")
@pytest.mark.parametrize("action", POSSIBLE)
def test_without_a_terminal_it_requires_yes(scene: Redbox, action: str):
    assert "add --yes or --dry-run" in scene.error(action, "pending", code=2)


@pytest.mark.req("RO-3")
def test_on_a_terminal_it_asks(scene: Redbox, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(changes, "can_ask", lambda: True)
    declined = scene("kill", "pending", "dead", input="n\n", code=1)
    assert "Kill 1 event of box 'default' (1 more would be refused)?" in declined.stderr
    assert "nothing was changed" in declined.stderr
    assert phases(scene)["AVAILABLE"] == 1
    assert scene("kill", "pending", input="y\n").stdout == "1 event killed\n"
    refused = scene("kill", "pending", code=1)
    assert "?" not in refused.stderr


def test_it_never_creates_a_box(redbox: Redbox):
    for action in POSSIBLE:
        assert "there is no box 'default'" in redbox.error(action, "x", "--yes", code=1)


@pytest.mark.req("RO-3")
def test_many_ids_are_one_entry_of_the_log(redbox: Redbox):
    ids = [f"e{n:04}" for n in range(1250)]
    redbox.put(*(Event("a", event_id=each) for each in ids))
    assert redbox("kill", "-", "--yes", input="\n".join(ids)).stdout == "1,250 events killed\n"
    (entry,) = redbox.lines("log")
    assert (entry["action"], entry["count"], len(entry["ids"])) == ("kill", 1250, 20)
    assert redbox.within(lambda box: box.stats()).phases[Phase.DEAD] == 1250
