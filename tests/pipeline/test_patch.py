"""patch: dead events through a function, put again as new ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from click.testing import Result

from redbox import Box, Event, Record, State
from redbox.errors import UsageError
from redbox.pipeline.jobs import patch as patching
from redbox.pipeline.jobs.patch import COLUMNS, Patched, new_id, patch, run_step, shown
from redbox.pipeline.source.connection import connected
from redbox.pipeline.source.options import Address
from redbox.testing import check_invariants
from redbox.testing.conformance.steps import claim_one, contents, fields_of, known, make_dead, put_and_claim

from .conftest import Command, Played

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.req("SP-7", "RF-3")


def repair(event: Event) -> Any:
    """Leaves one alone, chokes on another, and adds a currency to the rest."""
    value = event.decode()
    if value.get("leave"):
        return None
    return {**value, "cents": value["euros"] * 100}


def told(report: Patched) -> dict[str, int]:
    return {name: count for name, count in msgspec.structs.asdict(report.counts).items() if count}


async def graveyard(played: Played) -> None:
    await make_dead(
        played.box,
        Event("paid", {"euros": 1}, event_id="one", headers={"h": "1"}, metadata={"m": "1"}, partition_key="p"),
        Event("paid", {"euros": 2}, event_id="two", ordering_key="o", unique_key="u", unique_scope="UNTOUCHED"),
        Event("paid", {"cents": 3}, event_id="raises"),
        Event("paid", {"leave": True}, event_id="left"),
        Event("other", {"euros": 4}, event_id="other"),
        reason="no cents",
    )


def run(played: Played, spark: SparkSession, with_: Any = repair, **options: Any) -> Patched:
    options = {"where": "event_type = 'paid'", "who": "ada", "why": "a test", **options}
    return patch(spark, Address(played.url, played.name), with_, **options)


async def named_log(played: Played) -> list[tuple[Any, ...]]:
    entries = await played.box.operate.log()
    return [(entry.action, entry.who, entry.why, entry.count, sorted(entry.ids)) for entry in entries]


def test_dead_events_are_put_again_as_new_ones(played: Played, spark: SparkSession):
    played.run(graveyard(played))
    before = {event_id: played.run(known(played.box, event_id)) for event_id in ("one", "two", "raises", "left")}
    report = run(played, spark)
    assert told(report) == {"matched": 4, "patched": 2, "left": 1, "failed": 1}
    assert [(failure.event_id, failure.reason) for failure in report.failures] == [("raises", "KeyError: 'euros'")]
    previews = {preview.event_id: preview for preview in report.previews}
    assert previews.keys() == {"one", "two"}
    assert (previews["one"].before, previews["one"].after) == (
        {"payload": '{"euros":1}'}, {"payload": '{"euros":1,"cents":100}'},
    )  # fmt: skip
    for event_id, payload in (("one", b'{"euros":1,"cents":100}'), ("two", b'{"euros":2,"cents":200}')):
        old = before[event_id]
        new = played.run(known(played.box, new_id(event_id, old.number)))
        assert new.state is State.PENDING
        assert without_time(new) == msgspec.structs.replace(
            old.event, payload=payload, event_id=new.event_id, available_at=None,
            metadata={**old.event.metadata, "supersedes": event_id},
        )  # fmt: skip
        # A payload never changes, and nothing else does either, but for the number that this takes.
        now = played.run(known(played.box, event_id))
        assert now.number > old.number
        assert now == msgspec.structs.replace(old, superseded_by=new.event_id, number=now.number)
    for event_id in ("raises", "left", "other"):
        assert "superseded_by" not in played.run(fields_of(played.box, event_id))
    assert played.run(named_log(played)) == [("patch", "ada", "a test", 2, ["one", "two"])]
    assert played.run(check_invariants(played.box)) == []
    superseded = {row["event_id"]: row["superseded_by"] for row in played.read(spark, state="DEAD").collect()}
    assert superseded["one"] == previews["one"].new_id
    after = played.run(contents(played.box))
    assert told(run(played, spark)) == {"matched": 2, "left": 1, "failed": 1}  # again: nothing is left to do
    assert played.run(contents(played.box)) == after


@pytest.mark.req("OP-1")
def test_the_order_of_a_key_is_kept(redis_played: Played, spark: SparkSession):
    """Those that died in the same millisecond are read in the order of their ids."""
    box = redis_played.box
    ids = [f"{7 * number % 30:02}" for number in range(30)]
    events = [Event("paid", {"euros": 1}, event_id=each, ordering_key="k") for each in ids]
    redis_played.run(box.put_many(events))
    redis_played.run(box.operate.kill(ids, who="ada", why="a test"))
    assert told(run(redis_played, spark)) == {"matched": 30, "patched": 30}
    seen: list[str] = []
    while claims := redis_played.run(box.claim("relay")):
        seen += [claim.event.metadata["supersedes"] for claim in claims]
        redis_played.run(box.ack(claims))
    assert seen == ids


def without_time(record: Record) -> Event:
    return msgspec.structs.replace(record.event, available_at=None)


def test_a_dry_run_changes_nothing(redis_played: Played, spark: SparkSession):
    redis_played.run(graveyard(redis_played))
    before = redis_played.run(contents(redis_played.box))
    report = run(redis_played, spark, dry_run=True, sample=1)
    assert report.dry_run
    assert told(report) == {"matched": 4, "patched": 2, "left": 1, "failed": 1}
    assert len(report.previews) == 1
    assert redis_played.run(contents(redis_played.box)) == before


def test_a_function_may_return_a_whole_event(redis_played: Played, spark: SparkSession):
    redis_played.run(graveyard(redis_played))

    def work(event: Event) -> Event:
        return Event("paid.v2", b"\xff", event_id="ignored", headers={"new": event.headers.get("h", "")}, delay=60)

    report = run(redis_played, spark, work, where="event_id = 'one'")
    (preview,) = report.previews
    assert preview.before == {
        "payload": '{"euros":1}', "event_type": "paid", "content_type": "application/json", "headers": '{"h": "1"}',
        "metadata": '{"m": "1"}', "partition_key": "p", "delay": "",
    }  # fmt: skip
    assert preview.after == {
        "payload": "1 bytes", "event_type": "paid.v2", "content_type": "application/octet-stream",
        "headers": '{"new": "1"}', "metadata": "{}", "partition_key": "", "delay": "60",
    }  # fmt: skip
    new = redis_played.run(known(redis_played.box, preview.new_id))
    assert (new.event.event_type, new.event.payload, new.phase) == ("paid.v2", b"\xff", "SCHEDULED")
    assert dict(new.event.metadata) == {"supersedes": "one"}
    assert redis_played.run(redis_played.box.get("ignored")) is None


def test_what_is_no_event_leaves_the_old_one_dead_and_says_why(redis_played: Played, spark: SparkSession):
    redis_played.run(graveyard(redis_played))
    results = {"one": "x" * (1024 * 1024 + 1), "two": object(), "raises": 0, "left": "text"}

    def work(event: Event) -> Any:
        if event.event_id == "raises":
            return msgspec.structs.replace(event, event_type="a b")
        return results[event.event_id]

    report = run(redis_played, spark, work)
    assert told(report) == {"matched": 4, "patched": 1, "failed": 3}
    reasons = {failure.event_id: failure.reason for failure in report.failures}
    assert "1,048,577 bytes" in reasons["one"]
    assert reasons["two"].startswith("payload: cannot be encoded")
    assert reasons["raises"].startswith("event_type: must be printable and without spaces")


def test_a_held_unique_key_is_reported(redis_played: Played, spark: SparkSession):
    redis_played.run(graveyard(redis_played))
    redis_played.run(redis_played.box.put(Event("paid", event_id="holder", unique_key="u")))
    report = run(redis_played, spark, where="event_id = 'two'")
    assert told(report) == {"matched": 1, "refused": 1}
    assert report.failures[0].reason == "unique_key 'u' is held by event holder"
    assert redis_played.run(named_log(redis_played)) == []


def test_what_dies_again_is_patched_again(redis_played: Played, spark: SparkSession):
    redis_played.run(graveyard(redis_played))
    where = "event_id = 'one'"
    (first,) = run(redis_played, spark, where=where).previews

    async def again() -> None:
        await redis_played.box.ack(await claim_one(redis_played.box))
        await redis_played.box.replay(["one"], force=True)
        await redis_played.box.kill(await claim_one(redis_played.box))

    redis_played.run(again())
    (second,) = run(redis_played, spark, where=where).previews
    assert second.new_id != first.new_id
    assert redis_played.run(fields_of(redis_played.box, "one"))["superseded_by"] == second.new_id


# --- in the middle -----------------------------------------------------------------------------------------------


def rows_of(played: Played, *ids: str) -> list[dict[str, Any]]:
    """Events as a task gets them."""
    rows = []
    for event_id in ids:
        record = played.run(known(played.box, event_id))
        event = record.event
        row = {name: getattr(event, name, None) for name in COLUMNS}
        rows.append({**row, "claim": record.number, "headers": dict(event.headers), "metadata": dict(event.metadata)})
    return rows


def stepping(played: Played) -> Any:
    return connected(Address(played.url, played.name))


def test_what_is_replayed_before_the_put_is_left_alone(redis_played: Played):
    redis_played.run(graveyard(redis_played))
    rows = rows_of(redis_played, "one", "two")
    redis_played.run(redis_played.box.replay(["one"]))
    with stepping(redis_played) as connection:
        report = run_step(connection, repair, rows, dry_run=False)
    assert told(report) == {"matched": 2, "patched": 1, "changed": 1}
    assert report.failures[0].reason == "it was replayed, removed or superseded meanwhile"
    assert redis_played.run(redis_played.box.get(new_id("one", rows[0]["claim"]))) is None


@pytest.mark.parametrize("then", ["pending", "dead", "gone"])
def test_what_is_replayed_before_the_mark_is_not_marked(redis_played: Played, then: str):
    redis_played.run(graveyard(redis_played))
    rows = rows_of(redis_played, "one")

    with stepping(redis_played) as connection:
        put = connection.store.put

        async def put_and_replay(*arguments: Any) -> Any:
            replies = await put(*arguments)
            async with Box.open(redis_played.url, name=redis_played.name) as box:
                if then == "gone":
                    await box.operate.drop(["one"], who="ada", why="x")
                else:
                    await box.replay(["one"])
                if then == "dead":
                    await box.operate.kill(["one"], who="ada", why="x")
            return replies

        connection.store.put = put_and_replay
        report = run_step(connection, repair, rows, dry_run=False)
    assert told(report) == {"matched": 1, "changed": 1}
    assert "both may be delivered" in report.failures[0].reason
    if then != "gone":
        assert "superseded_by" not in redis_played.run(fields_of(redis_played.box, "one"))


def test_one_that_was_ended_between_put_and_mark_is_completed(redis_played: Played, monkeypatch: pytest.MonkeyPatch):
    """Also when the function does not return the same twice: the event that is there counts."""
    redis_played.run(graveyard(redis_played))
    rows = rows_of(redis_played, "one")
    numbers = iter(range(10))

    def unsteady(event: Event) -> Any:
        return {"number": next(numbers)}

    with stepping(redis_played) as connection:
        monkeypatch.setattr(connection.store, "mark_event", None)
        with pytest.raises(TypeError):
            run_step(connection, unsteady, rows, dry_run=False)
        monkeypatch.undo()
        report = run_step(connection, unsteady, rows, dry_run=False)
    assert told(report) == {"matched": 1, "patched": 1}
    successor = new_id("one", rows[0]["claim"])
    assert redis_played.run(known(redis_played.box, successor)).event.payload == b'{"number":0}'
    assert redis_played.run(fields_of(redis_played.box, "one"))["superseded_by"] == successor


def test_a_step_that_is_run_again_counts_what_it_did_and_puts_nothing_twice(redis_played: Played):
    redis_played.run(graveyard(redis_played))
    rows = rows_of(redis_played, "one", "two")
    with stepping(redis_played) as connection:
        first = run_step(connection, repair, rows, dry_run=False)
        successors = [new_id(row["event_id"], row["claim"]) for row in rows]
        redis_played.run(redis_played.box.operate.kill(successors, who="ada", why="delivered elsewhere"))
        redis_played.run(redis_played.box.operate.drop(successors, who="ada", why="long gone"))
        again = run_step(connection, repair, rows, dry_run=False)
    assert told(first) == told(again) == {"matched": 2, "patched": 2}
    assert [redis_played.run(redis_played.box.get(each)) for each in successors] == [None, None]


@pytest.mark.campaign
def test_a_job_that_ends_early_says_so_in_the_log(redis_played: Played, spark: SparkSession):
    redis_played.run(graveyard(redis_played))
    redis_played.run(redis_played.box.operate.configure(max_pending=1, who="ada", why="full"))
    with pytest.raises(Exception, match="max_pending"):
        run(redis_played, spark)
    entry = redis_played.run(redis_played.box.operate.log())[0]
    assert (entry.action, entry.count) == ("patch", 0)
    assert entry.detail.startswith("ended early, so more may be patched: with repair where event_type = 'paid'")


# --- mistakes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "complaint"),
    [
        ("event_type =", "where: Syntax error at or near end of input."),
        (
            "evnt_type = 'x'",
            "where: A column, variable, or function parameter with name `evnt_type` cannot be resolved",
        ),
        (
            "event_type",
            'where: Cannot resolve "event_type" due to data type mismatch: Filter expression "event_type"',
        ),
    ],
)
def test_bad_sql_is_one_clear_sentence(redis_played: Played, spark: SparkSession, where: str, complaint: str):
    redis_played.run(put_and_claim(redis_played.box))
    with pytest.raises(UsageError) as raised:
        run(redis_played, spark, where=where)
    assert raised.value.message.startswith(complaint)
    assert "SQLSTATE" not in raised.value.message
    assert "\n" not in raised.value.message


async def not_plain(event: Event) -> None: ...


@pytest.mark.parametrize(
    ("with_", "complaint"),
    [
        ("repair", "write module:function, such as fixes:add_currency, not 'repair'"),
        ("nowhere_at_all:repair", "there is no module nowhere_at_all, neither installed nor in "),
        ("json:nothing", "the module json has no nothing"),
        ("json:__name__", "json:__name__ is of type str, not a function"),
        (not_plain, "not_plain must be a plain function of an event: without async, and without yield"),
    ],
)
def test_anything_but_a_plain_function_is_refused(
    redis_played: Played, spark: SparkSession, with_: Any, complaint: str
):
    with pytest.raises(UsageError) as raised:
        run(redis_played, spark, with_)
    assert raised.value.message.startswith(complaint)


def test_payloads_are_shown_as_text_when_they_are():
    assert shown("tschüß\n".encode()) == "tschüß\n"
    assert shown(b"\xff\x00") == "2 bytes"
    assert shown(b"a\x1b[0m") == "5 bytes"
    assert shown(b"x" * 2000) == "x" * 1000 + "... (2,000 bytes)"


def test_the_sample_is_bounded():
    total = Patched()
    for number in range(50):
        part = Patched(ids=[f"{number}"], failures=[patching.PatchFailure(f"{number}", "x")])
        part.counts.patched = 1
        total.add(part, 3)
    assert (total.counts.patched, len(total.ids), len(total.failures)) == (50, 20, 3)


# --- the command line --------------------------------------------------------------------------------------------


def test_the_command(redis_played: Played, command: Command, tmp_path: Path):
    redis_played.run(graveyard(redis_played))
    (tmp_path / "fixes.py").write_text(
        "def add(event):\n    value = event.decode()\n    return {**value, 'cents': value['euros'] * 100}\n"
    )

    def patch_paid(*options: str) -> Result:
        chosen = ["--where", "event_type = 'paid'", "--with", "fixes:add"]
        return command(redis_played, "--json", "pipeline", "patch", *chosen, *options)

    refused = patch_paid()
    assert refused.exit_code == 2
    assert "add --yes or --dry-run" in refused.stderr
    done = patch_paid("--yes", "--why", "ticket 7")
    assert done.exit_code == 0, done.stderr
    data = json.loads(done.stdout)
    assert (data["rows"], data["patched"], data["failed"]) == (4, 2, 2)
    assert {preview["after"]["payload"] for preview in data["previews"]} == {
        '{"euros":1,"cents":100}', '{"euros":2,"cents":200}',
    }  # fmt: skip
    assert {failure["reason"] for failure in data["failures"]} == {"KeyError: 'euros'"}
    ((action, who, why, count, _),) = redis_played.run(named_log(redis_played))
    assert (action, why, count) == ("patch", "ticket 7", 2)
    assert who
