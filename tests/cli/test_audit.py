"""`redbox audit` and `redbox doctor`."""

from __future__ import annotations

import json

import pytest

from redbox import Box, Event, keys
from tests.cli.conftest import Redbox

pytestmark = pytest.mark.req("RO-4")


async def damage(box: Box) -> None:
    await box.put_many([Event("n", event_id=f"e{n}") for n in range(12)])
    for n in range(12):
        await box._store.exchange([("ZADD", keys.pending(box.name), n, f"e{n}")])
    await box._store.exchange([("ZADD", keys.dead(box.name), 5, "nobody")])


def test_audit_of_a_sound_box(redbox: Redbox):
    redbox.put(Event("n", unique_key="u"), Event("n"))
    result = redbox("audit")
    assert result.stdout == ""
    assert "no problem; 2 events and 1 lines and unique keys checked in" in result.stderr


def test_audit_groups_problems_by_rule(redbox: Redbox):
    redbox.within(damage)
    lines = redbox("audit", code=1).stdout.splitlines()
    assert lines[0].startswith("score: 12 problems. The rule: the score of an event in its index is the time")
    assert lines[1].split() == ["ID", "KEY", "PROBLEM"]
    assert lines[12] == "and 2 more; --limit shows more of them"
    assert lines[14].startswith("orphan: 1 problem.")
    assert len(redbox("audit", "--limit", "12", code=1).stdout.splitlines()) == 19


def test_audit_as_json(redbox: Redbox):
    redbox.within(damage)
    result = redbox("--json", "audit", code=1)
    problems = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(problems) == 13
    assert {problem["rule"] for problem in problems} == {"score", "orphan"}
    summary = json.loads(result.stderr.splitlines()[-1])
    assert (summary["problems"], summary["by_rule"], summary["events"]) == (13, {"score": 12, "orphan": 1}, 13)


def test_doctor_exits_with_1_if_there_is_an_error(redbox: Redbox):
    redbox.put(Event("n", delay=3600))
    text = redbox("doctor").stdout
    assert "WARNING 1 pending event, 0 of them due, and no relay is running" in text
    assert f"        → redbox --url {redbox.url} relay --to URL" in text
    redbox.within(damage)
    lines = redbox("doctor", code=1).stdout.splitlines()
    assert lines[0].startswith("ERROR   ")
    findings = redbox.lines("doctor", "--full", code=1)
    assert {"severity", "check", "sentence", "meaning", "remedy"} == set(findings[0])
    assert "audit: orphan" in {finding["check"] for finding in findings}


def test_doctor_needs_a_box(redbox: Redbox):
    assert "there is no box 'default'" in redbox.error("doctor", code=1)


def test_doctor_repairs(redbox: Redbox):
    redbox.within(damage)
    assert "confirmation needs a terminal" in redbox.error("doctor", "--repair", code=2)
    planned = redbox("doctor", "--repair", "--dry-run")
    assert "WOULD BE DONE" in planned.stdout
    assert "13 problems would be mended, 0 left; 13 events audited" in planned.stderr
    redbox("audit", code=1)
    done = redbox("doctor", "--repair", "--yes", "--why", "after the outage", "--who", "ada")
    assert "13 problems mended, 0 left" in done.stderr
    assert "its score in pending is corrected" in done.stdout
    redbox("audit")
    (entry,) = redbox.within(lambda box: box.operate.log())
    assert (entry.action, entry.who, entry.why, entry.count) == ("repair", "ada", "after the outage", 13)
    assert "nothing to mend, 0 left" in redbox("doctor", "--repair", "--yes").stderr


def test_doctor_reports_what_a_repair_leaves(redbox: Redbox):
    redbox.kill(Event("n", event_id="e"))
    redbox.within(lambda box: box._store.exchange([("SET", keys.body(box.name, "e"), b"\xc1")]))
    done = redbox.json("doctor", "--repair", "--yes", code=1)
    assert (done["mended"], [problem["rule"] for problem in done["left"]]) == ([], ["damaged"])
    assert "its stored body cannot be read" in redbox("doctor", "--repair", "--yes", code=1).stdout


def test_options_of_a_repair_need_it(redbox: Redbox):
    assert "options of --repair" in redbox.error("doctor", "--yes", code=2)


def test_a_relay_logs_errors_at_its_start(redbox: Redbox):
    redbox.put(Event("n"))
    redbox.within(lambda box: box._store.exchange([("ZADD", keys.lost(box.name), 5, "gone")]))
    log = redbox("relay", "--to", "null:", "--once").stderr
    assert log.count("1 lost event: 'gone'") == 1
    assert "redbox doctor --repair" in log


def test_a_repair_names_an_event_that_breaks_several_rules_once(redbox: Redbox):
    redbox.put(Event("a", event_id="e", ordering_key="k"))
    redbox.within(
        lambda box: box._store.exchange(
            [("ZREM", keys.pending(box.name), "e"), ("UNLINK", keys.line(box.name, "k"), keys.body(box.name, "e"))]
        )
    )
    assert (
        len([each for each in redbox.json("doctor", "--repair", "--dry-run")["mended"] if each["event_id"] == "e"]) > 1
    )
    rows = [line for line in redbox("doctor", "--repair", "--dry-run").stdout.splitlines() if line.startswith("e ")]
    assert len(rows) == 1


def test_the_commands_of_a_finding_name_the_box(redbox: Redbox):
    redbox("--box", "orders", "configure", "max_pending=5", "--yes")
    redbox("--box", "orders", "pause", "--why", "a test", "--yes")
    (finding,) = [each for each in redbox.lines("--box", "orders", "doctor") if each["check"] == "pause"]
    assert finding["remedy"] == f"`redbox --url {redbox.url} --box orders resume`"
    assert f"→ redbox --url {redbox.url} --box orders resume" in redbox("--box", "orders", "doctor").stdout
