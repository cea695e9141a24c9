"""`redbox relay` in this process: options, --once, errors and log."""

from __future__ import annotations

import itertools
import json
import logging
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from redbox import Box, Event, Relay
from redbox.cli.app import cli
from redbox.cli.printing import logs
from redbox.cli.relay import run as relay_run
from redbox.cli.relay.leftovers import Leftovers
from redbox.cli.relay.run import in_counts
from redbox.relay import Summary, policy
from redbox.service import HOST
from redbox.settings import LEASE
from redbox.testing import advance
from tests.cli.conftest import Redbox

pytestmark = pytest.mark.timeout(60)
_numbers = itertools.count()


@pytest.fixture
def target(redbox: Redbox, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Makes a module with an async function `publish(event, claim)`, and returns its URL."""

    def make(body: str) -> str:
        name = f"target_{next(_numbers)}"
        code = f"from pathlib import Path\nfrom redbox import *\nasync def publish(event, claim):\n    {body}\n"
        Path(f"{name}.py").write_text(code)
        monkeypatch.syspath_prepend(Path.cwd())
        return f"python:{name}:publish"

    return make


NOTE = "with Path('seen').open('a') as file: file.write(f'{event.event_type}\\n')"


def phases(redbox: Redbox, box: str = "default") -> dict[str, int]:
    return {phase: n for phase, n in redbox.json("--box", box, "stats")["phases"].items() if n}


# --- --once ----------------------------------------------------------------------------------------------------


def test_once_publishes_the_available_events_and_ends(redbox: Redbox, target: Callable[[str], str]):
    redbox.put(Event("a"), Event("b"), Event("later", delay=3600))
    result = redbox("relay", "--to", target(NOTE), "--once")
    assert Path("seen").read_text().splitlines() == ["a", "b"]
    assert result.stdout == ""
    assert re.search(r"INFO ended after .*: 2 published\n", result.stderr)
    assert f"from box default on {redbox.url} to the function target_" in result.stderr
    assert (
        "policy: retry exp:1s..5m, attempts 10, max-age unlimited, on-success keep, on-dead keep, concurrency 100, "
        "batch 100, lease 30 s, time-limit 30 s, grace 10 s, dead-to none, breaker on"
    ) in result.stderr
    assert phases(redbox) == {"COMPLETED": 2, "SCHEDULED": 1}


@pytest.mark.req("LM-1", "LM-2")
def test_limits_are_written_into_the_box(redbox: Redbox):
    redbox.put(Event("a"), Event("b"))
    result = redbox("relay", "--to", "null:", "--once", "--max-rate", "1000/s", "--max-in-flight", "1", "--name", "r1")
    assert "max_rate of box default is now 1000/s" in result.stderr
    assert "grace 10 s, max-rate 1000/s, max-in-flight 1, dead-to none" in result.stderr
    settings = redbox.within(lambda box: box.settings())
    assert (settings.max_rate, settings.max_in_flight) == ("1000/s", 1)
    assert phases(redbox) == {"COMPLETED": 2}
    redbox("relay", "--to", "null:", "--once")
    assert redbox.within(lambda box: box.settings()) == settings


def test_the_summary_as_json(redbox: Redbox):
    redbox.put(Event("a"), Event("b"), box="orders")
    result = redbox(
        "--json", "--box", "orders", "relay", "--to", "null:", "--once", "--name", "r1", "--on-success", "delete"
    )
    summary = json.loads(result.stdout)
    assert (summary["claimed"], summary["published"], summary["dead"]) == (2, 2, 0)
    (relay,) = summary["relays"]
    assert (relay["box"], relay["relay"], relay["target"], relay["problem"]) == ("orders", "r1", "null:", None)
    lines = [json.loads(line) for line in result.stderr.splitlines()]
    assert all(line.keys() >= {"time", "level", "logger", "message"} for line in lines if "note" not in line)
    assert phases(redbox, "orders") == {}


def test_events_on_stdout_have_it_for_themselves(redbox: Redbox):
    redbox.put(Event("a"), Event("b"))
    result = redbox("--json", "relay", "--to", "stdout:", "--once")
    assert [json.loads(line)["event_type"] for line in result.stdout.splitlines()] == ["a", "b"]
    assert json.loads(result.stderr.splitlines()[-1])["published"] == 2


@pytest.mark.req("RF-2", "RF-3")
def test_three_attempts_then_the_dead_letter_target(redbox: Redbox, target: Callable[[str], str]):
    redbox.put(Event("a"))
    bad = target(f"{NOTE}\n    raise ValueError('no way')")
    result = redbox("relay", "--to", bad, "--retry", "fixed:0", "--attempts", "3", "--dead-to", "stdout:", "--once")
    assert Path("seen").read_text().splitlines() == ["a", "a", "a"]
    (letter,) = [json.loads(line) for line in result.stdout.splitlines()]
    assert letter["headers"]["redbox-dead-reason"] == "ValueError: no way"
    assert "0 published, 2 retried, 1 dead" in result.stderr
    assert phases(redbox) == {"DEAD": 1}


@pytest.mark.req("RF-2")
def test_three_attempts_every_ten_minutes(redbox: Redbox, target: Callable[[str], str]):
    redbox.put(Event("a"))
    command = ("relay", "--to", target("raise ValueError"), "--retry", "fixed:10m", "--attempts", "3", "--once")
    for _ in range(2):
        redbox(*command, code=1)
        assert phases(redbox) == {"RETRY_SCHEDULED": 1}
        redbox.within(lambda box: advance(box, minutes=9, seconds=50))
        assert phases(redbox) == {"RETRY_SCHEDULED": 1}
        redbox.within(lambda box: advance(box, seconds=11))
    redbox(*command)
    assert phases(redbox) == {"DEAD": 1}


@pytest.mark.req("RF-2")
def test_three_attempts_every_ten_minutes_for_a_backlog_whose_target_is_down(
    redbox: Redbox, target: Callable[[str], str]
):
    """Every event is tried exactly three times, outage or not. The breaker would excuse the outage."""
    redbox.put(*(Event(f"a{number}") for number in range(30)))
    down = target(f"{NOTE}\n    raise Unavailable('connection refused')")
    command = ("relay", "--to", down, "--retry", "fixed:10m", "--attempts", "3", "--no-breaker", "--once")
    for attempt in (1, 2):
        redbox(*command, code=1)
        assert phases(redbox) == {"RETRY_SCHEDULED": 30}
        redbox(*command)  # too early: nothing is tried
        assert len(Path("seen").read_text().splitlines()) == 30 * attempt
        redbox.within(lambda box: advance(box, minutes=10, seconds=1))
    redbox(*command)
    assert phases(redbox) == {"DEAD": 30}
    assert Counter(Path("seen").read_text().splitlines()) == {f"a{number}": 3 for number in range(30)}


@pytest.mark.req("RF-2", "RF-4")
def test_with_the_breaker_an_outage_costs_no_attempts_and_max_age_bounds_it(
    redbox: Redbox, target: Callable[[str], str]
):
    redbox.put(*(Event("a") for _ in range(30)))
    down = target("raise Unavailable('connection refused')")
    command = ("relay", "--to", down, "--retry", "fixed:10m", "--attempts", "3", "--max-age", "2h", "--once")
    for _ in range(10):
        redbox(*command, code=1)
        assert "DEAD" not in phases(redbox)
        redbox.within(lambda box: advance(box, minutes=10, seconds=1))
    redbox.within(lambda box: advance(box, minutes=30))
    redbox(*command)
    assert phases(redbox) == {"DEAD": 30}


@pytest.mark.req("RF-3")
def test_dead_events_are_dropped_by_policy(redbox: Redbox, target: Callable[[str], str]):
    redbox.put(Event("a"))
    redbox("relay", "--to", target("raise Reject('never')"), "--on-dead", "drop", "--once")
    assert phases(redbox) == {}


def test_too_old_is_dead(redbox: Redbox, target: Callable[[str], str]):
    redbox.put(Event("a"))
    redbox.within(lambda box: advance(box, hours=2))
    redbox("relay", "--to", target(NOTE), "--max-age", "1h", "--once")
    assert phases(redbox) == {"DEAD": 1}
    assert not Path("seen").exists()


def left(stderr: str) -> str:
    """The log message about events that were left; empty if there is none."""
    lines = [line.partition(" INFO ")[2] for line in stderr.splitlines() if " left: " in line]
    assert len(lines) <= 1
    return "".join(lines)


def test_once_reports_events_left_in_back_off_and_scheduled(redbox: Redbox, target: Callable[[str], str]):
    redbox.put(Event("bad"), Event("bad"), Event("good"), Event("later", delay=3600))
    some = target("if event.event_type == 'bad': raise ValueError('no')")
    result = redbox("relay", "--to", some, "--retry", "fixed:10m", "--once", code=1)
    assert re.fullmatch(
        r"3 events are left: 2 in back-off, 1 scheduled; the next is due in (10 min|9 min 5\d s)", left(result.stderr)
    )
    assert phases(redbox) == {"COMPLETED": 1, "RETRY_SCHEDULED": 2, "SCHEDULED": 1}


def test_once_reports_events_left_behind_a_blocked_key(redbox: Redbox, target: Callable[[str], str]):
    redbox.within(lambda box: box.operate.configure(dead_head="block", who="me", why="test"))
    redbox.put(*(Event("a", event_id=f"e{number}", ordering_key="k") for number in range(3)))
    result = redbox("relay", "--to", target("raise Reject('never')"), "--once")
    expected = (
        "2 events are left: 2 behind the head of their ordering key (1 key is blocked by a dead event: "
        "replay or drop it)"
    )
    assert left(result.stderr) == expected


def test_once_reports_events_left_by_a_paused_key(redbox: Redbox, target: Callable[[str], str]):
    redbox.put(Event("a", ordering_key="k"))
    redbox.within(lambda box: box.operate.pause(key="k", who="me", why="test"))
    result = redbox("relay", "--to", target(NOTE), "--once")
    assert left(result.stderr) == (
        "1 event is left: 1 behind the head of its ordering key, or of a paused key (1 key is paused: "
        "`redbox resume --key KEY` resumes it)"
    )


def test_once_reports_events_left_by_a_paused_box_and_an_open_breaker(redbox: Redbox, target: Callable[[str], str]):
    redbox.put(*(Event("a") for _ in range(40)))
    down = target("raise Unavailable('refused')")
    words = left(redbox("relay", "--to", down, "--retry", "fixed:1h", "--concurrency", "1", "--once", code=1).stderr)
    assert words.startswith("40 events are left: ")
    assert " available (the breaker is open: the target was" in words
    redbox.within(lambda box: box.operate.pause(who="me", why="test"))
    result = redbox("--json", "relay", "--to", "null:", "--once", code=1)
    (relay,) = json.loads(result.stdout)["relays"]
    available, in_back_off = relay["left"]["available"], relay["left"]["in_back_off"]
    assert (available + in_back_off, available > 0, in_back_off >= 5, relay["left"]["paused"]) == (40, True, True, True)
    assert f"{available} available (the box is paused)" in result.stderr


def test_once_says_nothing_when_nothing_is_left(redbox: Redbox):
    redbox.put(Event("a"))
    result = redbox("relay", "--to", "null:", "--once")
    assert left(result.stderr) == ""


@pytest.mark.req("RF-4")
def test_once_fails_when_the_target_is_down(redbox: Redbox, target: Callable[[str], str]):
    redbox.put(*(Event("a") for _ in range(40)))
    down = target("raise Unavailable('connection refused')")
    result = redbox("relay", "--to", down, "--attempts", "2", "--once", code=1)
    problem = "ERROR not drained: the breaker is open: the target was unavailable 5 times in a row: connection refused"
    assert problem in result.stderr
    assert "WARNING the breaker is open: the target was unavailable 5 times" in result.stderr
    assert "next probe" not in result.stderr  # the run ends
    assert "DEAD" not in phases(redbox)
    redbox("relay", "--to", down, "--attempts", "1", "--once", "--no-breaker")
    assert phases(redbox)["DEAD"] >= 5  # as was asked for


@pytest.mark.req("RF-4")
def test_once_fails_when_the_target_is_down_for_a_few_events(redbox: Redbox, target: Callable[[str], str]):
    """Too few to open the breaker."""
    redbox.put(*(Event("a", event_id=f"e{number}") for number in range(4)))
    down = target("raise Unavailable('connection refused')")
    result = redbox("--json", "relay", "--to", down, "--retry", "fixed:1h", "--once", "--log", "text", code=1)
    problem = "4 events could not be delivered: e0, e1, e2 and 1 more; the last error was: connection refused"
    assert f"ERROR not drained: {problem}" in result.stderr
    assert left(result.stderr).startswith("4 events are left: 4 in back-off")
    assert json.loads(result.stdout)["relays"][0]["problem"] == problem


@pytest.mark.parametrize("breaker", [(), ("--no-breaker",)])
def test_once_fails_when_one_event_of_several_is_left(
    redbox: Redbox, target: Callable[[str], str], breaker: tuple[str, ...]
):
    redbox.put(Event("a"), Event("bad", event_id="e1"), Event("b"))
    some = target("if event.event_type == 'bad': raise ValueError('no way')")
    result = redbox("relay", "--to", some, "--retry", "fixed:1h", "--once", *breaker, code=1)
    assert (
        "ERROR not drained: 1 event could not be delivered: e1; the last error was: ValueError: no way" in result.stderr
    )
    assert "2 published, 1 retried" in result.stderr
    redbox("relay", "--to", some, "--once", *breaker)  # it is not due, so it is not tried


def test_once_succeeds_when_failed_events_are_published_or_dead_in_the_end(
    redbox: Redbox, target: Callable[[str], str]
):
    redbox.put(Event("a"), Event("b"))
    late = target("if event.event_type == 'b' or claim.attempts < 3: raise ValueError('not yet')")
    result = redbox("relay", "--to", late, "--retry", "fixed:0", "--attempts", "4", "--once")
    assert "1 published, 5 retried, 1 dead" in result.stderr


def test_once_fails_when_all_calls_hang(redbox: Redbox, monkeypatch: pytest.MonkeyPatch):
    redbox.put(*(Event("a") for _ in range(3)))
    Path("hanging.py").write_text("import threading\ngate = threading.Event()\ndef publish(event): gate.wait(30)\n")
    monkeypatch.syspath_prepend(Path.cwd())
    monkeypatch.delitem(sys.modules, "hanging", raising=False)
    count_left = relay_run._leftovers

    async def end_call_and_count_left(relay: Relay) -> Leftovers | None:
        sys.modules["hanging"].gate.set()  # the relay has ended; its process waits for the thread
        return await count_left(relay)

    monkeypatch.setattr(relay_run, "_leftovers", end_call_and_count_left)
    options = "--concurrency 1 --time-limit 0.2s --retry fixed:1h --no-breaker --once"
    result = redbox("relay", "--to", "python:hanging:publish", *options.split(), code=1)
    problem = "1 call of the publisher hangs, which is the most it takes at once"
    assert f"ERROR not drained: {problem}" in result.stderr
    assert left(result.stderr).startswith(f"3 events are left: 1 in back-off, 2 available ({problem})")


def test_once_fails_when_the_box_is_paused(redbox: Redbox):
    redbox.put(Event("a"))
    redbox.within(lambda box: box.operate.pause(who="me", why="test"))
    result = redbox("--json", "relay", "--to", "null:", "--once", code=1)
    assert "is paused" in json.loads(result.stdout)["relays"][0]["problem"]
    assert json.loads(result.stderr.splitlines()[-1])["level"] == "ERROR"


def test_quiet_says_nothing_when_all_is_well(redbox: Redbox):
    redbox.put(Event("a"))
    notes = redbox("relay", "--to", "null:", "--once", "--quiet").stderr.splitlines()
    assert [line for line in notes if "lasts only as long" not in line] == []


@pytest.mark.req("RO-7")
def test_alerts_of_a_drain_go_to_a_target_of_their_own(redbox: Redbox, target: Callable[[str], str]):
    redbox.put(Event("a", event_id="e1"))
    bad = target("import redbox; raise redbox.Reject('HTTP 422: bad')")
    result = redbox("relay", "--to", bad, "--no-breaker", "--alerts-to", "stdout:", "--once")
    (alert,) = [json.loads(line) for line in result.stdout.splitlines()]
    assert alert["event_type"] == "redbox.error_group.new"
    assert alert["payload"]["box"] == "default"
    assert alert["payload"]["text"].startswith("event e1 of type a is the first DEAD one of error group ")
    again = redbox("relay", "--to", bad, "--no-breaker", "--alerts-to", "stdout:", "--once")
    assert again.stdout == ""


@pytest.mark.req("RO-5")
def test_each_json_record_about_an_event_has_its_id(redbox: Redbox, target: Callable[[str], str]):
    redbox.put(Event("a", event_id="e1"), Event("b", event_id="e2"))
    bad = target("import redbox; raise (redbox.Reject if event.event_type == 'a' else ValueError)('no way')")
    result = redbox("--debug", "relay", "--to", bad, "--no-breaker", "--log", "json", "--once", code=1)
    records = [json.loads(line) for line in result.stderr.splitlines() if line.startswith("{")]
    about = [each for each in records if re.search(r"event e\d ", each["message"])]
    assert len(about) >= 4
    for each in about:
        assert f"event {each['event_id']} " in each["message"]


def test_debug_logs_each_retry(redbox: Redbox, target: Callable[[str], str]):
    redbox.put(Event("a"))
    bad = target("raise ValueError('no way')")
    assert re.search(
        r"DEBUG event .* is retried in .* s: ValueError: no way",
        redbox("--debug", "relay", "--to", bad, "--once", code=1).stderr,
    )


def test_several_boxes_from_a_file(redbox: Redbox, target: Callable[[str], str]):
    redbox.put(Event("a"), box="orders")
    redbox.put(Event("b"), box="users")
    redbox.within(lambda box: box.operate.pause(who="me", why="test"), "users")
    text = f'log = "json"\n[[relay]]\nbox = "orders"\nto = "{target(NOTE)}"\n[[relay]]\nbox = "users"\nto = "null:"\n'
    Path("redbox.toml").write_text(text)
    result = redbox("relay", "--config", "redbox.toml", "--once", code=1)  # one is paused; the other is drained
    assert (phases(redbox, "orders"), phases(redbox, "users")) == ({"COMPLETED": 1}, {"AVAILABLE": 1})
    records = [json.loads(line) for line in result.stderr.splitlines() if line.startswith("{")]
    assert {(record["box"], record["published"]) for record in records if "published" in record} == {
        ("orders", 1), ("users", 0),
    }  # fmt: skip
    result = redbox("relay", "--config", "redbox.toml", "--once", "--log", "text", code=1)
    assert re.search(r"Z ERROR users: not drained: .* is paused", result.stderr)


def test_a_relay_that_fails_for_good_ends_all(redbox: Redbox):
    redbox.put(Event("a"), box="orders")
    redbox.put(Event("b"), box="users")

    async def make_newer(box: Box) -> None:
        await box._store.exchange([("HSET", "{redbox:users:0}:meta", "layout", "99")])

    redbox.within(make_newer, "users")
    Path("redbox.toml").write_text("".join(f"[[relay]]\nbox = '{box}'\nto = 'null:'\n" for box in ("orders", "users")))
    result = redbox("relay", "--config", "redbox.toml", code=1)
    assert "error: " in result.stderr.splitlines()[-1]
    assert "upgrade" in result.stderr.splitlines()[-1]


# --- what is wrong is said before anything is claimed ----------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("", "Missing option '--to', the target; or give --config FILE"),
        ("--to nope:", "Invalid value for '--to': a target is a URL that begins with one of https://"),
        ("--to python:nowhere:publish", "Invalid value for '--to': python: there is no module nowhere"),
        ("--to https://u:pw@h/", "Invalid value for '--to': a password must not be written here"),
        ("--to https://h/ -o secret=abc", "Invalid value for '--option': secret: a secret must not be written here"),
        (
            "--to https://h/ -o secret=${NOT_SET}",
            "Invalid value for '--option': secret: the environment variable NOT_SET",
        ),
        ("--to null: -o x", "Invalid value for '-o' / '--option': write NAME=VALUE"),
        ("--to null: -o x=1", "Invalid value for '--option': null: has no option 'x'; it has none"),
        ("--to https://a -o timeout=x", "Invalid value for '--option': timeout must be"),
        (
            "--to null: --dead-to https://a --dead-option timeout=x",
            "Invalid value for '--dead-option': timeout must be",
        ),
        ("--to https:// -o timeout=1", "Invalid value for '--to': "),
        ("--to null: --dead-to x:", "Invalid value for '--dead-to': a target is a URL that begins"),
        ("--to null: --alerts-to x:", "Invalid value for '--alerts-to': a target is a URL that begins"),
        ("--to null: --alert-age 1m", "Invalid value for '--alert-age': alerts_to is not given"),
        ("--to null: --dead-option a=1", "Invalid value for '--dead-option': dead_to is not given"),
        ("--to null: --retry often", "Invalid value for '--retry': 'often' is not a retry policy; write fixed:10m"),
        ("--to null: --attempts 0", "Invalid value for '--attempts': give a whole number of at least 1, or unlimited"),
        ("--to null: --retry fixed:0 --attempts unlimited", "retries without a delay need a limit of attempts"),
        ("--to null: --lease long", "Invalid value for '--lease': 'long' is not a duration"),
        ("--to null: --max-rate 50", "Invalid value for '--max-rate': must be a number of events and a unit of time"),
        ("--to null: --max-rate 0/s", "Invalid value for '--max-rate': must be more than 0, not '0/s'; to stop all"),
        ("--to null: --max-in-flight 0", "Invalid value for '--max-in-flight': 0 is not in the range x>=1"),
        ("--to null: --max-in-flight 5000000000", "Invalid value for '--max-in-flight': must be between 1 and"),
        ("--to null: --batch 5000", "Invalid value for '--batch': 5000 is not in the range 1<=x<=1000"),
        ("--to null: --metrics-host ::", "--metrics-host without --metrics-port serves nothing"),
        ("--config nowhere.toml", "Invalid value for '--config': File 'nowhere.toml' does not exist"),
        ("--config redbox.toml --to null:", "--to cannot be combined with --config: write it into the file"),
        ("--config redbox.toml --no-breaker", "--no-breaker cannot be combined with --config: write it into the file"),
        ("--config redbox.toml", "redbox.toml:2: relay 1 (box default): to: a target is a URL that begins with"),
    ],
)
def test_wrong_usage(redbox: Redbox, options: str, said: str):
    Path("redbox.toml").write_text("[[relay]]\nto = 'nope:'\n")
    assert redbox.error("relay", *options.split(), code=2).startswith(said)


def test_a_file_names_its_boxes(redbox: Redbox):
    Path("redbox.toml").write_text("[[relay]]\nto = 'null:'\n")
    said = redbox.error("--box", "orders", "relay", "--config", "redbox.toml", code=2)
    assert said.startswith("--box cannot be combined with --config: the file names the boxes")


def test_a_target_whose_package_is_missing(redbox: Redbox, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, "redbox.publishers.http.publisher", raising=False)
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    said = redbox.error("relay", "--to", "https://h/", code=1)
    assert "pip install 'redbox-outbox[http]'" in said


def test_a_store_that_cannot_be_reached(redbox: Redbox):
    said = redbox.error("relay", "--to", "null:", url="redis://localhost:1/0", code=3)
    assert said.startswith("redis://localhost:1/0 cannot be reached")


def test_the_help_shows_the_defaults_that_are_used():
    command = cli.get_command(click.Context(cli), "relay")
    assert command is not None
    shown = {
        param.name: found[1]
        for param in command.params
        if isinstance(param, click.Option) and (found := re.search(r"\[default: (.*)\]", param.help or ""))
    }
    assert shown["metrics_host"] == HOST
    assert shown["attempts"] == str(policy.ATTEMPTS)
    assert shown["concurrency"] == str(policy.CONCURRENCY)
    assert shown["batch"] == str(policy.BATCH)
    assert shown["lease"] == f"{LEASE:g}s"
    assert shown["time_limit"] == f"{policy.TIME_LIMIT:g}s"
    assert shown["grace"] == f"{policy.GRACE:g}s"


def test_signals_are_as_they_were(redbox: Redbox):
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    redbox("relay", "--to", "null:", "--once")
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before


# --- logs ------------------------------------------------------------------------------------------------------


def test_log_lines(capsys: pytest.CaptureFixture[str]):
    logger = logging.getLogger("redbox.test")
    with logs.to_stderr("text", logging.INFO, name_box=True):
        token = logs.about.set({"box": "orders", "relay": "r1"})
        logger.warning("the target said: %s", "\x1b[31mno\nway")
        logger.debug("not this")
        logging.getLogger("aiormq.connection").error("what redbox reports itself")
        logs.about.reset(token)
    with logs.to_stderr("json", logging.INFO):
        try:
            raise ValueError("no")
        except ValueError:
            logger.exception("it failed", extra={"count": 3, "path": Path("x")})
    logger.warning("after it")
    text, as_json = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ WARNING orders: the target said: \\x1b\[31mno way", text)
    record = json.loads(as_json)
    assert (record["level"], record["logger"], record["message"]) == ("ERROR", "redbox.test", "it failed")
    assert (record["count"], record["path"]) == (3, "x")
    assert "ValueError: no" in record["traceback"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", record["time"])


def test_counts_in_words():
    assert in_counts(Summary()) == "0 published"
    assert in_counts(Summary(published=1200, fenced=1)) == "1,200 published, 1 lost to another relay"
