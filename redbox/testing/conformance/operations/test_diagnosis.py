"""RO-4: the audit of a whole box, and the diagnosis of a box and its server."""

from __future__ import annotations

from typing import Any

import pytest

from redbox import Box, Event, keys
from redbox.audit import Finding, Severity, audit_box, diagnose, diagnosis, quick_errors, repair
from redbox.store.server.server_facts import ServerFacts
from redbox.testing import advance
from redbox.testing.conformance.steps import contents, make_dead, publish

pytestmark = pytest.mark.req("RO-4")


async def write(box: Box, *command: Any) -> None:
    await box._store.exchange([command])


async def found(box: Box, check: str, **options: Any) -> list[Finding]:
    """The findings of one check."""
    return [finding for finding in await diagnose(box, **options) if finding.check == check]


@pytest.mark.req("SC-8")
async def test_an_audit_counts_events_and_reports_progress(box: Box):
    await publish(box, *(Event("n", unique_key=f"u{n}") for n in range(250)))
    await box.put_many([Event("n", ordering_key="k", unique_key=f"u{n}") for n in range(130)])
    before, steps = await contents(box), []
    audit = audit_box(box, progress=lambda done, total: steps.append((done, total)))
    assert [problem async for problem in audit] == []
    assert (audit.events, audit.keys, audit.problems) == (380, 131, 0)
    assert steps[-1] == (380, 380)
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    assert await contents(box) == before


async def test_a_problem_is_reported_once_however_often_its_id_is_found(box: Box):
    await box.put(Event("n", event_id="e"))
    for index in ("pending", "dead", "retries"):
        await write(box, "ZADD", f"{keys.prefix(box.name)}:{index}", 5, "nobody")
    await write(box, "SET", keys.body(box.name, "nobody"), "x")
    audit = audit_box(box)
    sentences = [problem.sentence async for problem in audit]
    assert len(sentences) == len(set(sentences)) == 4
    assert dict(audit.by_rule) == {"orphan": 4}


async def test_a_sample_finds_problems_at_the_ends_of_an_index(box: Box):
    await box.put_many([Event("n", event_id=f"e{n:03}", delay=1 + n) for n in range(50)])
    for event_id in ("e000", "e025", "e049"):
        await write(box, "HSET", keys.event(box.name, event_id), "expiries", "2")
    audit = audit_box(box, sample=5)
    assert {problem.event_id async for problem in audit} == {"e000", "e049"}
    assert audit.events == 10
    assert {problem.event_id async for problem in audit_box(box)} == {"e000", "e025", "e049"}


async def test_an_audit_without_bodies_reads_none(box: Box):
    await make_dead(box, Event("n", event_id="dead"))
    await write(box, "SET", keys.body(box.name, "dead"), b"\xc1")
    assert [problem.rule async for problem in audit_box(box)] == ["damaged"]
    assert [problem.rule async for problem in audit_box(box, bodies=False)] == []


async def test_an_audit_can_be_given_up(box: Box):
    await box.put_many([Event("n", event_id=f"e{n}") for n in range(900)])
    for n in range(900):
        await write(box, "ZADD", keys.dead(box.name), 1, f"nobody{n}")
    async for problem in audit_box(box):
        assert problem.rule == "orphan"
        break
    assert (await box.stats()).box == box.name


async def test_a_sound_box_has_no_error(box: Box):
    await publish(box, Event("n"))
    findings = await diagnose(box)
    assert [each for each in findings if each.severity is Severity.ERROR] == []
    assert {"layout", "audit", "clock"} <= {each.check for each in findings if each.severity is Severity.OK}
    order = list(Severity)
    assert [order.index(each.severity) for each in findings] == sorted(order.index(each.severity) for each in findings)
    assert all(each.meaning and each.remedy for each in findings if each.severity in ("error", "warning"))


async def test_pending_events_without_a_relay(box: Box):
    await box.put(Event("n", delay=3600))
    (finding,) = await found(box, "relays")
    assert finding.severity is Severity.WARNING
    await box.put(Event("n"))
    (finding,) = await found(box, "relays")
    assert finding.severity is Severity.ERROR
    assert "2 pending events, 1 of them due" in finding.sentence
    await box.beat("relay-1", "one", {"version": "1"}, fresh=15)
    (finding,) = await found(box, "relays")
    assert finding.severity is Severity.OK


async def test_relays_of_different_versions_and_an_open_breaker(box: Box):
    await box.put(Event("n"))
    await box.beat("relay-1", "one", {"version": "0.9"}, fresh=15)
    await box.beat(
        "relay-2", "two", {"version": "1.0", "breaker": "open", "reason": "HTTP 503", "target": "http://a"}, fresh=15
    )
    (versions,) = await found(box, "versions")
    assert "0.9, 1.0" in versions.sentence
    (breaker,) = await found(box, "breaker")
    assert "relay-2 is open: HTTP 503" in breaker.sentence


async def test_over_age_claims_and_blocked_keys(box: Box):
    await box.operate.configure(dead_head="block", who="test", why="blocks")
    await make_dead(box, Event("n", ordering_key="k7"))
    await box.put(Event("n"))
    await box.claim("relay-1", lease=10)
    await advance(box, minutes=1)
    (claims,) = await found(box, "claims")
    assert claims.sentence == "1 expired claim; the lease ended 50 s ago"
    assert claims.meaning.startswith("the event returns to PENDING")
    assert claims.remedy == "`redbox reap`"
    (blocked,) = await found(box, "blocked")
    assert blocked.sentence == "1 ordering key blocked by a dead event: 'k7'"


async def test_blocked_and_paused_keys_are_named_once(box: Box):
    await box.operate.configure(dead_head="block", who="test", why="blocks")
    for n in range(7):
        await make_dead(box, Event("n", ordering_key=f"k{n}"))
        await advance(box, seconds=1)
    (blocked,) = await found(box, "blocked")
    named = "'k0', 'k1', 'k2', 'k3', 'k4' and 2 more"
    assert blocked.sentence == f"7 ordering keys blocked by dead events: {named}"
    await box.operate.pause(who="test", why="test", key="k1", duration=60)
    (paused,) = await found(box, "pause")
    assert paused.sentence == "1 ordering key is paused: 'k1'"
    assert paused.meaning.startswith("its events wait")
    assert paused.remedy == "`redbox resume --key=k1`"
    await box.operate.pause(who="test", why="test", key="k2", duration=90)
    (paused,) = await found(box, "pause")
    assert paused.sentence == "2 ordering keys are paused: 'k1', 'k2'"


async def test_lost_ids_and_unreadable_settings_are_errors_at_the_start_of_a_relay_too(box: Box):
    await box.put(Event("n"))
    await write(box, "ZADD", keys.lost(box.name), 5, "gone")
    await write(box, "HSET", keys.meta(box.name), "max_pending", "many")
    (lost,) = await found(box, "lost")
    assert "'gone'" in lost.sentence
    (settings,) = await found(box, "settings")
    assert "max_pending" in settings.sentence
    assert {finding.check for finding in await quick_errors(box)} == {"lost", "settings"}


async def test_broken_rules_are_errors(box: Box):
    await box.put(Event("n", event_id="e"))
    await write(box, "ZADD", keys.pending(box.name), 1, "e")
    (finding,) = await found(box, "audit: score")
    assert finding.severity is Severity.ERROR
    assert "such as e: has score 1" in finding.sentence
    assert await found(box, "audit: score", full=True) == [finding]


async def test_events_in_no_index_are_found_in_a_small_box(box: Box):
    await box.put_many([Event("n", event_id=f"e{n}") for n in range(20)])
    (sound,) = await found(box, "audit")
    assert sound.sentence == "no rule is broken; the whole box, 20 events, was checked"
    await write(box, "ZREM", keys.pending(box.name), "e1", "e2", "e3")
    (finding,) = await found(box, "audit: index")
    assert "3 problems" in finding.sentence


@pytest.mark.parametrize(("limit", "value"), [("WHOLE_EVENTS", 20), ("WHOLE_KEYS", -1)])
async def test_a_sample_of_a_large_box_says_what_it_does_not_show(
    box: Box, limit: str, value: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(diagnosis, limit, value)
    await box.put_many([Event("n", event_id=f"e{n}") for n in range(23)])
    await write(box, "ZREM", keys.pending(box.name), "e1", "e2")
    (sample,) = await found(box, "audit")
    assert sample.severity is Severity.INFO
    assert sample.sentence == "a sample was audited, 21 of 21 events; no problem found"
    assert "in no index" in sample.meaning
    assert "redbox doctor --full" in sample.remedy
    (finding,) = await found(box, "audit: index", full=True)
    assert "2 problems" in finding.sentence
    await write(box, "ZADD", keys.pending(box.name), 1, "e3")
    assert len(await found(box, "audit: score")) == 1
    (sample,) = await found(box, "audit")
    assert "other problems may be hidden" in sample.sentence


async def test_what_is_left_to_do_after_a_repair_found_no_body(box: Box):
    await publish(box, Event("n", event_id="published"))
    await box.put_many([Event("n", event_id=each) for each in ("c", "d")])
    for event_id in ("c", "published"):
        await write(box, "DEL", keys.body(box.name, event_id))
    assert await found(box, "bodies") == []
    await repair(box)
    (finding,) = await found(box, "bodies")
    assert finding.sentence == "1 dead event without a body: 'c'"
    assert finding.remedy == "`redbox drop ID`, and put it again from the data of the application"
    assert [each.severity for each in await found(box, "audit")] == ["ok"]
    await box.operate.drop(["c"], who="ada", why="test")
    await box.put(Event("n", event_id="c"))
    assert await found(box, "bodies") == []


async def test_relays_are_not_called_slow_during_a_ramp(box: Box):
    await box.put(Event("n"))
    await advance(box, minutes=10)
    (finding,) = await found(box, "backlog")
    assert (finding.severity, finding.meaning) == (Severity.WARNING, "relays are too slow, or not running")
    await box.operate.pause(who="ada", why="test")
    await box.operate.resume(who="ada", why="test", ramp=600)
    (finding,) = await found(box, "backlog")
    assert finding.severity is Severity.INFO
    assert "resumed gradually" in finding.meaning


@pytest.mark.req("LM-2")
async def test_a_limit_that_is_reached_explains_a_backlog(box: Box):
    await box.put_many([Event("n"), Event("n")])
    await advance(box, minutes=10)
    await box.operate.configure(max_in_flight=1, who="ada", why="test")
    await box.claim("relay-1", limit=1)
    (finding,) = await found(box, "backlog")
    assert finding.meaning == "the limit max_in_flight=1 is reached"
    assert finding.remedy == "`redbox configure max_in_flight=VALUE` raises it, if the target can take more"


async def test_bugs_that_redbox_avoids_come_after_other_information(box: Box, monkeypatch: pytest.MonkeyPatch):
    facts = ServerFacts({"redis_version": "7.0.15", "connected_slaves": "0"}, {"appendfsync": "everysec"}, ())

    async def server_facts() -> ServerFacts:
        return facts

    monkeypatch.setattr(box._store, "server_facts", server_facts)
    checks = [each.check for each in await diagnose(box) if each.severity is Severity.INFO]
    assert checks == ["replicas", "known bugs", "known bugs"]


async def test_a_newer_layout_ends_the_diagnosis(box: Box):
    await write(box, "HSET", keys.meta(box.name), "layout", "99")
    (finding,) = await found(box, "layout")
    assert finding.severity is Severity.ERROR
    assert await quick_errors(box) == []


@pytest.mark.parametrize("name", ["pending", "counters", "meta"])
@pytest.mark.parametrize("full", [False, True])
async def test_a_foreign_key_of_the_box_is_named_and_audited(box: Box, name: str, full: bool):
    await box.put(Event("n"))
    where = f"{keys.prefix(box.name)}:{name}"
    await box._store.exchange([("DEL", where), ("RPUSH", where, "x")])
    findings = {finding.check: finding for finding in await diagnose(box, full=full)}
    assert f"{where} is a list, but redbox expects" in findings["keys"].sentence
    assert f"{where} is a list, but redbox expects" in findings["audit: foreign"].sentence
    assert "--repair" not in findings["audit: foreign"].remedy
