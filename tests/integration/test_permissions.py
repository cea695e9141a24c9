"""Users of the server who may not do everything: nothing is half-written, and the error says what to grant."""

# ruff: noqa: PT012  # a transaction is a block of its own

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from click.testing import CliRunner

from redbox import (
    Backoff,
    Box,
    DurabilityNotReached,
    Event,
    NotPermitted,
    Reject,
    Relay,
    State,
    StoreUnavailable,
    keys,
)
from redbox.audit import all_problems, diagnose, quick_errors, repair
from redbox.cli.app import cli
from redbox.publishers.registry import open_publisher
from redbox.relay import metrics
from redbox.relay.alerts import Alerts
from redbox.relay.digest import Digest
from redbox.store.scripts.registry import NO_WRITES, REGISTRY, commands
from redbox.store.server.permissions import ARGUMENTS, needed, together
from redbox.store.wire.base import BlockingWait
from redbox.testing import check_invariants
from redbox.testing.plugin import new_box_name
from tests import servers
from tests.roles import FOR_DURABILITY, acl_rules

pytestmark = pytest.mark.usefixtures("redbox_runner")

WRITING = sorted(name for name, signature in REGISTRY.items() if signature.flag != NO_WRITES)


@pytest.fixture(scope="module", params=["redis", "valkey"])
def server(request: pytest.FixtureRequest) -> Iterator[servers.Server]:
    launch = servers.redis_server if request.param == "redis" else servers.valkey_server
    with launch() as started:
        yield started


@pytest.fixture(scope="module")
def client(server: servers.Server) -> Iterator[redis.Redis]:
    with server.client(decode_responses=False) as opened:
        yield opened


@pytest.fixture
def box(server: servers.Server, redbox_runner: asyncio.Runner) -> Iterator[Box]:
    """A box of a user who may do everything."""
    opened = Box.open(server.url, name=new_box_name())
    yield opened
    redbox_runner.run(opened.aclose())


class Restricted:
    """The same box, for a user whose permissions can be changed."""

    def __init__(self, client: redis.Redis, server: servers.Server, name: str) -> None:
        self._client = client
        self.user = f"user-{name}"
        self.url = f"redis://{self.user}:pw@{server.host}:{server.port}/0"
        self.box = Box.open(self.url, name=name)
        self.permit()

    def permit(self, *rules: str, key_pattern: str | None = None) -> None:
        """All commands on the box's keys, and then these rules."""
        pattern = key_pattern or f"~{keys.prefix(self.box.name)}:*"
        self._client.execute_command("ACL", "SETUSER", self.user, "reset", "on", ">pw", pattern, "+@all", *rules)


@pytest.fixture
def restricted(
    server: servers.Server, client: redis.Redis, box: Box, redbox_runner: asyncio.Runner
) -> Iterator[Restricted]:
    made = Restricted(client, server, box.name)
    yield made
    redbox_runner.run(made.box.aclose())
    client.execute_command("ACL", "DELUSER", made.user)


def content(client: redis.Redis, name: str) -> dict[bytes, Any]:
    return {key: client.dump(key) for key in client.scan_iter(f"{keys.prefix(name)}*")}


# --- how it is asked ---------------------------------------------------------------------------------------------


def test_every_command_is_asked_about_with_as_many_arguments_as_it_takes(client: redis.Redis):
    """Servers crash, or refuse, when they are asked with fewer."""
    known: Any = client.execute_command("COMMAND", "INFO", *ARGUMENTS)
    for name, told in known.items():
        arity, given = told["arity"], ARGUMENTS[name.upper()] + 1
        assert given == arity or given == -arity or (arity < 0 and given > -arity), name


# --- before the first write --------------------------------------------------------------------------------------


@pytest.mark.req("SC-4")
async def test_a_put_without_a_permission_names_it_and_writes_nothing(restricted: Restricted, client: redis.Redis):
    restricted.permit("-zadd", "-mset")
    for _ in range(2):
        with pytest.raises(NotPermitted, match=r"nothing was changed.*grant it \+mset \+zadd") as caught:
            await restricted.box.put(Event("a", event_id="1"))
        assert caught.value.missing == ("+mset", "+zadd")
    assert content(client, restricted.box.name) == {}
    restricted.permit()
    assert (await restricted.box.put(Event("a", event_id="1"))).created
    assert await check_invariants(restricted.box) == []


@pytest.mark.req("SC-4")
async def test_a_key_that_is_not_permitted_is_named(restricted: Restricted, client: redis.Redis):
    prefix = keys.prefix(restricted.box.name)
    restricted.permit(f"~{prefix}:e:*", f"~{prefix}:b:*", key_pattern=f"~{prefix}:meta")
    with pytest.raises(NotPermitted) as caught:
        await restricted.box.put(Event("a"))
    assert caught.value.missing == (f"~{prefix}:*",)
    assert content(client, restricted.box.name) == {}


@pytest.mark.parametrize("access", ["%R", "%W"])
async def test_a_key_that_may_only_be_read_or_only_written_is_named(restricted: Restricted, access: str):
    prefix = keys.prefix(restricted.box.name)
    restricted.permit(f"{access}~{prefix}:[a-ln-z]*", key_pattern=f"~{prefix}:meta")
    with pytest.raises(NotPermitted) as caught:
        await restricted.box.put(Event("a"))
    assert caught.value.missing == (f"~{prefix}:*",)


async def test_a_missing_permission_is_an_error_of_a_store_that_may_let_us_in_later(restricted: Restricted):
    restricted.permit("-hset")
    with pytest.raises(StoreUnavailable):  # a relay waits, and goes on when it is granted
        await restricted.box.claim("relay-1")


@pytest.mark.parametrize("script", WRITING)
async def test_every_writing_script_is_checked(restricted: Restricted, script: str):
    for command in sorted(needed(script) if script == "put" else commands(script)):
        restricted.permit(f"-{command.lower()}")
        with pytest.raises(NotPermitted) as caught:
            await restricted.box._store.scripts.script(script)
        assert caught.value.missing == (f"+{command.lower()}",)
    restricted.permit()
    await restricted.box._store.scripts.script(script)


async def test_nothing_is_claimed_that_could_not_be_settled(box: Box, restricted: Restricted):
    await box.put(Event("a", event_id="1"))
    only_settling = {each for name in together("claim") for each in commands(name)} - commands("claim")
    assert "UNLINK" in only_settling
    restricted.permit("-unlink")
    with pytest.raises(NotPermitted, match=r"\+unlink"):
        await restricted.box.claim("relay-1")
    assert (await box.get("1")).state is State.PENDING  # type: ignore[union-attr]


async def test_a_permission_that_one_script_lacks_does_not_stop_another(restricted: Restricted):
    restricted.permit("-unlink", "-zremrangebyrank")
    assert (await restricted.box.put(Event("a"))).created
    async with restricted.box.transaction() as tx:
        tx.put(Event("b"))
    with pytest.raises(NotPermitted):
        await restricted.box.claim("relay-1")


@pytest.mark.req("MQ-6")
async def test_an_application_that_must_not_remove_events_can_put_but_not_replace(restricted: Restricted):
    restricted.permit("-unlink", "-zrem", "-hdel")
    await restricted.box.put(Event("a", event_id="holder", unique_key="u"))
    for _ in range(2):
        with pytest.raises(NotPermitted, match=r"\+unlink"):
            await restricted.box.put(Event("b", unique_key="u"), on_conflict="replace")
    with pytest.raises(NotPermitted, match=r"\+zrem"):
        await restricted.box.put_many([Event("b", unique_key="u")], on_conflict="replace")
    with pytest.raises(NotPermitted, match=r"\+hdel"):
        async with restricted.box.transaction() as tx:
            tx.put(Event("b", unique_key="u"), on_conflict="replace")
    assert [record.event_id async for record in restricted.box.list()] == ["holder"]
    restricted.permit("+unlink", "+zrem", "+hdel")
    assert (await restricted.box.put(Event("b", unique_key="u"), on_conflict="replace")).replaced == "holder"


async def test_a_transaction_without_a_permission_commits_nothing(restricted: Restricted, client: redis.Redis):
    restricted.permit("-zadd")
    transaction = restricted.box.transaction()
    own = transaction.key("own")
    with pytest.raises(NotPermitted, match=r"\+zadd"):
        async with transaction as tx:
            tx.redis.set(own, "1")
            tx.put(Event("a"))
    assert content(client, restricted.box.name) == {}


async def test_permissions_are_asked_for_once(restricted: Restricted, client: redis.Redis):
    def calls() -> int:
        return int(client.info("commandstats").get("cmdstat_eval", {"calls": 0})["calls"])

    await restricted.box.put(Event("a"))  # the server knows the scripts now
    await restricted.box.ack(await restricted.box.claim("relay-1"))
    before = calls()
    async with Box.open(restricted.url, name=restricted.box.name) as other:
        await asyncio.gather(*(other.put(Event("a")) for _ in range(5)), other.claim("relay-1"))
        await other.put(Event("b"))
    assert calls() == before + 1


@pytest.mark.req("SC-4")
async def test_a_revoked_permission_is_checked_again(restricted: Restricted, client: redis.Redis):
    await restricted.box.put(Event("a", event_id="1"))
    restricted.permit("-zadd")
    with pytest.raises(NotPermitted):
        await restricted.box.put(Event("a", event_id="2"))  # too late for the check: half of it is written
    before = content(client, restricted.box.name)
    with pytest.raises(NotPermitted, match=r"nothing was changed.*\+zadd"):
        await restricted.box.put(Event("a", event_id="3"))
    assert content(client, restricted.box.name) == before
    restricted.permit()
    assert (await restricted.box.put(Event("a", event_id="2"))).created
    assert await check_invariants(restricted.box) == []
    assert {claim.event_id for claim in await restricted.box.claim("relay-1", limit=10)} == {"1", "2"}


async def test_a_wait_that_is_not_permitted_costs_no_check_of_the_scripts(
    restricted: Restricted, monkeypatch: pytest.MonkeyPatch
):
    asked, scripts = Counter[str](), restricted.box._store.scripts
    check = scripts.check_permissions

    async def counted(*arguments: Any) -> Any:
        asked["check"] += 1
        return await check(*arguments)

    monkeypatch.setattr(scripts, "check_permissions", counted)
    restricted.permit("-blpop")
    for _ in range(3):
        with pytest.raises(NotPermitted):
            await restricted.box.wait_for_hint(0.01)
        with pytest.raises(NotPermitted):
            await restricted.box.claim_packed(
                "relay-1", limit=1, lease=30, attempts=None, holding=0, longest=0.01, wait=BlockingWait()
            )
    assert asked["check"] == 1


# --- what an interrupted put left ----------------------------------------------------------------------------------

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "delayed": {"delay": 0.0},
    "ordered": {"ordering_key": "o"},
    "unique": {"unique_key": "u"},
    "both": {"ordering_key": "o", "unique_key": "u"},
}


@pytest.mark.req("SC-4")
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("lost", ["zadd", "mset", "hincrby"])
async def test_a_put_that_was_interrupted_is_mended_by_the_next(
    box: Box, restricted: Restricted, lost: str, options: dict[str, Any]
):
    event: Callable[[], Event] = lambda: Event("a", {"n": 1}, event_id="1", **options)  # noqa: E731
    await restricted.box.put(Event("first", event_id="0", ordering_key="other"))
    await box.ack(await box.claim("relay-1"))  # takes the hint, too
    restricted.permit(f"-{lost}")
    with pytest.raises(NotPermitted, match="repeat"):
        await restricted.box.put(event())
    problems, receipt = await check_invariants(box), await box.put(event())
    assert receipt.created or problems == []  # nothing was missing but a counter
    assert await check_invariants(box) == []
    await box.put(Event("behind", event_id="2", ordering_key="o"))
    claims = await box.claim("relay-1")
    assert [claim.event_id for claim in claims if claim.event_id != "2"] == ["1"]
    await box.ack(claims)
    assert not (await box.put(event())).created


# --- on the command line -----------------------------------------------------------------------------------------


def test_boxes_that_are_not_permitted_do_not_hide_the_others(
    box: Box, restricted: Restricted, server: servers.Server, redbox_runner: asyncio.Runner
):
    async def put() -> None:
        await box.put(Event("a"))
        async with Box.open(server.url, name=f"{box.name}-hidden") as hidden:
            await hidden.put(Event("a"))

    redbox_runner.run(put())
    result = CliRunner().invoke(cli, ["--url", restricted.url, "--json", "boxes"])
    told = {each["box"]: each for each in map(json.loads, result.stdout.splitlines())}
    assert result.exit_code == 1
    assert told[box.name]["phases"]["AVAILABLE"] == 1
    assert "does not permit" in told[f"{box.name}-hidden"]["error"]
    assert "does not permit" in CliRunner().invoke(cli, ["--url", restricted.url, "boxes"]).stdout


def test_the_missing_grants_are_one_sentence_and_the_exit_code_is_1(restricted: Restricted):
    restricted.permit("-zadd")
    result = CliRunner().invoke(cli, ["--url", restricted.url, "--box", restricted.box.name, "put", "a", "1"])
    assert result.exit_code == 1
    assert "grant it +zadd" in result.stderr
    assert "check --url" not in result.stderr


# --- the users of docs/permissions.md --------------------------------------------------------------------------------


@pytest.fixture
def as_role(server: servers.Server, client: redis.Redis, redbox_runner: asyncio.Runner) -> Iterator[Callable[..., str]]:
    made: list[str] = []

    def make(role: str, name: str, *extra: str) -> str:
        """The URL of a user who has exactly the permissions of a role for a box."""
        user = f"{role}-{name}"
        made.append(user)
        client.execute_command("ACL", "SETUSER", user, "reset", "on", ">pw", *acl_rules(role, name).split(), *extra)
        return f"redis://{user}:pw@{server.host}:{server.port}/0"

    yield make
    client.execute_command("ACL", "DELUSER", *made)


async def test_an_application_needs_no_more(box: Box, as_role: Callable[..., str]):
    url = as_role("application", box.name)
    async with Box.open(url, name=box.name) as own:
        for options in OPTIONS.values():
            assert (await own.put(Event("a", **options))).created
            await box.ack(await box.claim("relay-1", limit=10))
        many = [Event("b", event_id=str(number)) for number in range(10)]
        assert all(receipt.created for receipt in await own.put_many(many))
        assert not any(receipt.created for receipt in await own.put_many(many))
        async with own.transaction() as tx:
            tx.put(Event("c"))
        with pytest.raises(NotPermitted):
            await own.claim("relay-1")
    assert await check_invariants(box) == []


@pytest.mark.req("RO-7")
async def test_alerts_need_two_more_commands(box: Box, as_role: Callable[..., str]):
    url = as_role("relay", box.name, "+del", "+psetex")
    await box.put(Event("n"))
    await box.operate.pause(who="ada", why="a test")
    alerts: list[str] = []
    async with Box.open(url, name=box.name) as own:
        watcher = Alerts(own, "r1", open_publisher(lambda event: alerts.append(event.event_type)), Digest())
        await watcher.run_once()
        await box.operate.resume(who="ada", why="a test")
        await watcher.run_once()
        await watcher.leave()
    assert alerts == ["redbox.box.paused", "redbox.box.resumed"]


async def test_a_relay_needs_no_more(box: Box, as_role: Callable[..., str], caplog: pytest.LogCaptureFixture):
    url = as_role("relay", box.name)
    await box.operate.configure(keep_published=0, who="ada", why="a test")
    await box.put_many([Event("good"), Event("bad"), Event("worse"), Event("good", ordering_key="o", unique_key="u")])

    wanted, tried = Counter(good=2, bad=3, worse=1), Counter[str]()
    all_tried = asyncio.Event()

    async def publish(event: Event) -> None:
        tried[event.event_type] += 1
        if tried == wanted:
            all_tried.set()
        if event.event_type == "bad":
            raise ValueError("no")
        if event.event_type == "worse":
            raise Reject("never")

    await box.claim("gone", limit=1, lease=0.001)
    async with Box.open(url, name=box.name) as own:
        relay = Relay(own, publish, backoff=Backoff.fixed(0), attempts=3, breaker=None)
        running = asyncio.create_task(relay.run())
        await asyncio.wait_for(all_tried.wait(), 20)
        assert "redbox_store_up" in await metrics.scrape([relay])
        relay.stop()
        assert (await running).dead == 2
        await own.sweep()
        await own.reap()
    assert [record.getMessage() for record in caplog.records if "permit" in record.getMessage()] == []
    assert await check_invariants(box) == []


def test_an_operator_needs_no_more(box: Box, as_role: Callable[..., str], redbox_runner: asyncio.Runner):
    url = as_role("operator", box.name)

    async def put() -> None:
        await box.put_many([Event("a", event_id=str(number)) for number in range(3)])
        await box.kill(await box.claim("relay-1", limit=2), reason="no")

    redbox_runner.run(put())
    commands = (
        "put a 1", "list", "show 1", "stats", "boxes", "dead list", "dead replay 1 --yes",
        "relay --once --to null: --quiet",
    )  # fmt: skip
    for command in commands:
        result = CliRunner().invoke(cli, ["--url", url, "--box", box.name, *command.split()])
        hidden = command == "boxes"  # those of other tests
        assert result.exit_code in ((0, 1) if hidden else (0,)), (command, result.output)

    async def operate() -> None:
        async with Box.open(url, name=box.name) as own:
            await own.operate.pause(who="ada", why="a test")
            await own.operate.resume(who="ada", why="a test")
            assert await own.operate.log()
            assert [problem async for problem in all_problems(own._store)] == []

    redbox_runner.run(operate())


async def test_waiting_for_replicas_needs_no_more(as_role: Callable[..., str]):
    name = new_box_name()
    url = as_role("application", name, *(f"+{each.lower()}" for each in FOR_DURABILITY["replicas=N"]))
    async with Box.open(url, name=name) as own:
        with pytest.raises(DurabilityNotReached):  # permitted, but there is no replica
            await own.put(Event("a"), durability="replicas=1")


async def test_fsync_needs_no_more():
    with servers.valkey_server(appendonly="yes", appendfsync="always") as server, server.client() as client:
        extra = [f"+{each.lower()}" for each in FOR_DURABILITY["fsync"]]
        client.execute_command("ACL", "SETUSER", "app", "on", ">pw", *acl_rules("application", "b").split(), *extra)
        async with Box.open(f"redis://app:pw@{server.host}:{server.port}/0", name="b", durability="fsync") as own:
            assert (await own.put(Event("a"))).durability == "fsync"


async def test_a_cluster_needs_two_commands_more():
    with servers.cluster() as cluster:
        for node in cluster.nodes:
            with node.client() as client:
                rules = (*acl_rules("application", "b").split(), "+cluster|slots", "+command")
                client.execute_command("ACL", "SETUSER", "app", "on", ">pw", *rules)
        url = cluster.url.replace("://", "://app:pw@")
        async with Box.open(url, name="b") as own:
            assert (await own.put(Event("a"))).created


async def test_a_stream_as_a_target_needs_one_command(client: redis.Redis, server: servers.Server, box: Box):
    client.execute_command("ACL", "SETUSER", "target", "reset", "on", ">pw", "~shop", "+xadd")
    await box.put(Event("a"))
    await Relay(box, f"redis+stream://target:pw@{server.host}:{server.port}/0/shop").drain()
    assert client.xlen("shop") == 1
    client.delete("shop")


# --- doctor ------------------------------------------------------------------------------------------------------


@pytest.mark.req("RO-4")
async def test_doctor_says_what_it_could_not_check(box: Box, restricted: Restricted, client: redis.Redis):
    await box.put(Event("n", event_id="e"))
    full = {finding.check for finding in await diagnose(restricted.box)}
    assert {"eviction", "persistence", "replicas", "memory", "permissions"} <= full
    rules = acl_rules("operator", box.name)
    client.execute_command("ACL", "SETUSER", restricted.user, "reset", "on", ">pw", *rules.split())
    findings = await diagnose(restricted.box, full=True)
    refused = [finding for finding in findings if "does not answer" in finding.sentence]
    assert ["+info" in refused[0].remedy, "+config|get" in refused[1].remedy] == [True, True]
    checks = {finding.check: finding.severity for finding in findings}
    assert (checks["permissions"], checks["audit"], checks["layout"]) == ("ok", "ok", "ok")
    assert not {"eviction", "persistence", "replicas", "memory"} & checks.keys()
    await box._store.exchange([("ZADD", keys.pending(box.name), 5, "e")])
    assert (await repair(restricted.box)).ids == ["e"]


@pytest.mark.req("RO-4")
async def test_doctor_names_missing_permissions(box: Box, restricted: Restricted, client: redis.Redis):
    await box.put(Event("n"))
    restricted.permit("-zadd")
    (finding,) = [each for each in await diagnose(restricted.box) if each.check == "permissions"]
    assert finding.severity == "warning"
    assert finding.remedy == "`redis-cli ACL SETUSER NAME +zadd`"
    rules = acl_rules("relay", box.name)
    client.execute_command("ACL", "SETUSER", restricted.user, "reset", "on", ">pw", *rules.split())
    assert await quick_errors(restricted.box) == []
    restricted.permit("-eval", "-evalsha")
    findings = [each for each in await diagnose(restricted.box) if each.check == "permissions"]
    assert {each.severity for each in findings} == {"error"}
