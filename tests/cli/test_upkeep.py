"""`redbox reap`, `sweep` and `log`."""

from __future__ import annotations

import pytest

from redbox import Box, Event, Phase
from redbox.cli.options import changes
from redbox.testing import advance
from tests.cli.conftest import Redbox


def count(redbox: Redbox, phase: Phase) -> int:
    return redbox.within(lambda box: box.stats()).phases[phase]


async def expire(box: Box) -> None:
    await box.put_many([Event("a", event_id=f"e{n}") for n in range(3)])
    await box.claim("relay-1", limit=2)
    await advance(box, seconds=60)
    await box.claim("relay-1")


@pytest.mark.req("RO-3")
def test_reap(redbox: Redbox):
    redbox.within(expire)
    assert redbox.json("reap", "--dry-run") == {"action": "reap", "dry_run": True, "count": 2, "ids": ["e0", "e1"]}
    assert count(redbox, Phase.IN_FLIGHT) == 3
    assert redbox("reap", "--yes", "--limit", "1", "--why", "no relay").stdout == "1 event returned to PENDING\n"
    assert redbox("reap", "--yes").stdout == "1 event returned to PENDING\n"
    assert redbox("reap", "--yes").stdout == "0 events returned to PENDING\n"
    assert count(redbox, Phase.IN_FLIGHT) == 1
    entries = redbox.within(lambda box: box.operate.log())
    assert [(entry.action, entry.count, entry.ids, entry.why) for entry in entries] == [
        ("reap", 0, (), ""), ("reap", 1, ("e1",), ""), ("reap", 1, ("e0",), "no relay"),
    ]  # fmt: skip


async def settle(box: Box) -> None:
    await box.put_many([Event("a") for _ in range(6)])
    claims = await box.claim("relay-1")
    await box.ack(claims[:4])
    await box.kill(claims[4:], reason="no")
    await advance(box, seconds=3600)


@pytest.mark.req("MQ-5", "RO-3")
def test_sweep(redbox: Redbox):
    redbox.within(settle)
    assert redbox("sweep", "--dry-run").stdout == "0 PUBLISHED and 0 DEAD events would be removed\n"
    dry = redbox("sweep", "--keep-published", "1m", "--keep-dead-count", "1", "--dry-run")
    assert dry.stdout == "4 PUBLISHED and 1 DEAD events would be removed\n"
    assert count(redbox, Phase.COMPLETED) == 4
    assert redbox.within(lambda box: box.operate.log()) == []
    limited = redbox("sweep", "--keep-published", "1m", "--limit", "3", "--yes", "--why", "memory")
    assert limited.stdout == "3 PUBLISHED and 0 DEAD events removed\n"
    assert redbox.json("sweep", "--keep-published", "0", "--keep-dead", "0", "--yes") == {
        "action": "sweep", "dry_run": False, "published": 1, "dead": 2,
    }  # fmt: skip
    newest, first = redbox.within(lambda box: box.operate.log())
    assert (first.action, first.count, first.why, first.detail) == ("sweep", 3, "memory", "keep_published=60")
    assert (newest.count, newest.detail) == (3, "keep_published=0 keep_dead=0")
    assert "is not a duration" in redbox.error("sweep", "--keep-dead", "x", "--yes", code=2)


@pytest.mark.req("RO-3")
def test_reap_and_sweep_ask_on_a_terminal(redbox: Redbox, monkeypatch: pytest.MonkeyPatch):
    redbox.within(settle)
    for action in ("reap", "sweep"):
        assert "add --yes or --dry-run" in redbox.error(action, code=2)
    monkeypatch.setattr(changes, "can_ask", lambda: True)
    assert redbox("sweep").stdout == "0 PUBLISHED and 0 DEAD events removed\n"
    assert redbox("reap").stdout == "0 events returned to PENDING\n"
    declined = redbox("sweep", "--keep-published", "0", input="n\n", code=1)
    assert "Remove 4 PUBLISHED and 0 DEAD events of box 'default' for good?" in declined.stderr
    redbox.within(expire)
    assert "Return 2 events of box 'default' to PENDING?" in redbox("reap", input="n\n", code=1).stderr
    assert count(redbox, Phase.COMPLETED) == 4


async def act(box: Box) -> None:
    await box.put_many([Event("a", event_id=f"e{n}") for n in range(5)])
    await box.operate.pause(who="ada", why="deploy")
    await box.operate.reschedule(["e0"], delay=60, who="ada", why="later")
    await box.operate.kill([f"e{n}" for n in range(1, 5)], who="bob", why="\x1b[31mtest")


@pytest.mark.req("RO-3")
def test_log(redbox: Redbox):
    redbox.put(Event("x"))
    assert "the log of this box is empty" in redbox("log").stderr
    redbox.within(act)
    header, kill, reschedule, pause = redbox("log").stdout.splitlines()
    assert header.split() == ["AT", "ACTION", "EVENTS", "WHO", "WHY", "DETAIL"]
    assert kill.split(maxsplit=3)[1:] == ["kill", "4", "bob  \\x1b[31mtest  e1 e2 e3 ..."]
    assert reschedule.split()[1:6] == ["reschedule", "1", "ada", "later", "due"]
    assert pause.split()[1:4] == ["pause", "ada", "deploy"]
    assert [entry["action"] for entry in redbox.lines("log", "--who", "ada")] == ["reschedule", "pause"]
    assert [entry["who"] for entry in redbox.lines("log", "--action", "kill")] == ["bob"]
    assert [entry["action"] for entry in redbox.lines("log", "--limit", "1")] == ["kill"]
    assert len(redbox.lines("log", "--since", "1h")) == 3
    assert redbox.lines("log", "--until", "1h") == []
    assert "no entries match the filters" in redbox("log", "--action", "x").stderr
