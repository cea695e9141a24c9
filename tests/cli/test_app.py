"""Everything that commands share: global options, help, errors and exit codes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from redis._parsers.base import BaseParser

import redbox as package
from redbox import Event
from redbox.cli.app import COMMANDS, cli
from redbox.cli.printing.failures import describe_failure
from redbox.errors import EmbeddedServerFailed, StoreUnavailable
from redbox.store.errors import translate
from tests.cli.conftest import Redbox

NOWHERE = "redis://localhost:1/0"


def commands() -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    context = click.Context(cli)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        found.append((name,))
        if isinstance(command, click.Group):
            found += [(name, below) for below in command.list_commands(click.Context(command))]
    return found


@pytest.mark.parametrize("path", [(), *commands()], ids=lambda path: " ".join(path) or "redbox")
def test_every_command_has_help_with_examples(path: tuple[str, ...]):
    result = CliRunner().invoke(cli, [*path, "--help"])
    assert result.exit_code == 0
    assert "Examples:\n    redbox " in result.stdout
    assert CliRunner().invoke(cli, [*path, "-h"]).stdout == result.stdout


@pytest.mark.parametrize("path", commands(), ids=" ".join)
def test_the_list_of_commands_shows_first_lines_in_full(path: tuple[str, ...]):
    command: click.Command | None = cli
    for name in path:
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), name)
    assert command is not None
    first, _, _ = (command.help or "").partition("\n")
    assert len(first) < 60
    assert command.get_short_help_str(60) == first


def test_commands_that_take_relative_times_explain_them():
    for path in (("list",), ("dead", "list"), ("dead", "replay"), ("reschedule",), ("pause",), ("log",)):
        shown = " ".join(CliRunner().invoke(cli, [*path, "--help"]).stdout.split())
        assert "Relative times: `1h` is an hour ago, `+1h` an hour from now." in shown


def test_the_help_lists_the_commands_in_order():
    listed = CliRunner().invoke(cli, ["--help"]).stdout.partition("Commands:\n")[2]
    assert [line.split()[0] for line in listed.splitlines()] == list(COMMANDS)


def test_version(redbox: Redbox):
    assert redbox("--version").stdout == f"redbox {package.__version__}\n"
    assert redbox.json("--version") == {"version": package.__version__}


def test_without_a_command_the_help_is_shown_as_wrong_usage(redbox: Redbox):
    assert "Examples:" in redbox(code=2, url=None).stderr


# --- which store -----------------------------------------------------------------------------------------------


def test_without_a_store_the_error_names_the_url_option(redbox: Redbox):
    message = redbox.error("list", url=None, code=2)
    assert "give --url before the command or set $REDBOX_URL, e.g. redis://localhost:6379/0" in message
    assert os.listdir() == []


def test_url_and_box_come_from_the_environment(redbox: Redbox, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("REDBOX_URL", redbox.url)
    monkeypatch.setenv("REDBOX_BOX", "orders")
    redbox("put", "a", url=None)
    assert redbox.json("stats", url=None)["box"] == "orders"
    assert redbox.json("--box", "orders", "stats")["totals"] == {"put": 1}


def test_the_local_directory_is_used_with_a_note(redbox: Redbox):
    Path(".redbox").mkdir()
    result = redbox("put", "a", url=None)
    assert "using embedded:./.redbox, since neither --url nor $REDBOX_URL is set" in result.stderr
    found = redbox("--json", "stats", url=None)
    assert json.loads(found.stdout)["phases"]["AVAILABLE"] == 1
    assert "embedded:./.redbox" in json.loads(found.stderr)["note"]


@pytest.mark.parametrize("path", [("list",), ("stats",), ("boxes",), ("show", "x"), ("dead", "list")])
def test_reading_creates_no_directory(redbox: Redbox, path: tuple[str, ...]):
    assert "there is no directory ./data" in redbox.error(*path, url="embedded:./data", code=1)
    assert os.listdir() == []


@pytest.mark.parametrize(
    "path", [("list",), ("stats",), ("show", "x"), ("dead", "list"), ("dead", "replay", "x", "--yes")], ids=" ".join
)
def test_reading_creates_no_box(redbox: Redbox, path: tuple[str, ...]):
    assert "there is no box 'default'" in (message := redbox.error(*path, code=1))
    assert "it has no boxes yet; `redbox put` creates one" in message
    redbox.put(Event("a"), box="orders")
    redbox.put(Event("a"), box="users")
    assert redbox.error(*path, code=1).endswith("existing boxes: orders, users")
    assert [box["box"] for box in redbox.lines("boxes")] == ["orders", "users"]


# --- errors ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (("frob",), "No such command 'frob'"),
        (("list", "--frob"), "No such option"),
        (("list", "--limit", "0"), "--limit"),
        (("list", "--json"), "--json goes before the command: redbox --json ..."),
        (("stats", "--url", "x"), "--url goes before the command: redbox --url ..."),
        (("--box", "no such box!", "put", "a"), "box name 'no such box!': use 1 to 64 letters"),
        (("dead",), "dead"),
    ],
)
def test_wrong_usage(redbox: Redbox, path: tuple[str, ...], message: str):
    result = redbox(*path, code=2)
    assert message in result.stderr


@pytest.mark.parametrize("url", ["bogus", "ftp://x", "redis://localhost:port"])
def test_an_invalid_url_is_wrong_usage(redbox: Redbox, url: str):
    redbox.error("list", url=url, code=2)


@pytest.mark.parametrize(
    "path", [("list",), ("put", "a"), ("boxes",), ("conform",), ("dead", "replay", "x", "--yes")], ids=" ".join
)
def test_an_unreachable_store_has_its_own_exit_code(redbox: Redbox, path: tuple[str, ...]):
    message = redbox.error(*path, url=NOWHERE, code=3)
    assert message.startswith(f"{NOWHERE} cannot be reached")
    assert "check --url or $REDBOX_URL, and that the server is running" in message


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ("WRONGPASS invalid username-password pair or user is disabled.", "refused the user or the password"),
        ("NOAUTH Authentication required.", "asks for a password, and got none"),
        ("LOADING Redis is loading the dataset in memory", "is still loading its data; wait, or use another server"),
    ],
)
def test_a_server_that_answers_is_running(reply: str, words: str):
    error = translate(BaseParser.parse_error(reply), where="redis://here", box="orders", maybe=False)
    failure = describe_failure(error)
    assert failure.exit_code == 3
    assert f"redis://here {words}" in failure.message
    assert "running" not in failure.message
    assert ("--url or $REDBOX_URL" in failure.message) == (not reply.startswith("LOADING"))


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (StoreUnavailable("it is away"), 3, "it is away; check --url or $REDBOX_URL, and that the server is running"),
        (EmbeddedServerFailed("the disk is full; free some"), 3, "the disk is full; free some"),
        (ZeroDivisionError("oh"), 1, "unexpected ZeroDivisionError: oh; run it again with --debug"),
        (PermissionError(13, "Permission denied", "x.json"), 1, "x.json: Permission denied"),
        (KeyboardInterrupt(), 1, "stopped before it finished"),
    ],
)
def test_every_failure_is_a_sentence_and_an_exit_code(
    redbox: Redbox, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, message: str
):
    def fail(*args: object) -> None:
        raise error

    monkeypatch.setattr("redbox.cli.session.Session.open", fail)
    assert redbox.error("put", "a", code=code).startswith(message)
    reported = json.loads(redbox("--json", "put", "a", code=code).stderr.splitlines()[-1])
    assert reported["exit_code"] == code
    assert reported["message"].startswith(message)


def test_debug_shows_the_traceback_as_well(redbox: Redbox):
    result = CliRunner().invoke(cli, ["--debug", "--url", NOWHERE, "list"])
    assert result.exit_code == 3
    assert "Traceback" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("error: ")


def test_errors_as_json(redbox: Redbox):
    wrong = json.loads(redbox("--json", "list", "--frob", code=2).stderr)
    assert (wrong["error"], wrong["exit_code"]) == ("UsageError", 2)
    away = json.loads(redbox("--json", "list", url=NOWHERE, code=3).stderr)
    assert (away["error"], away["exit_code"]) == ("StoreUnavailable", 3)
    assert away["message"].startswith(f"{NOWHERE} cannot be reached")


def test_secrets_in_the_url_are_not_printed(redbox: Redbox):
    assert "hunter2" not in redbox.error("list", url="redis://:hunter2@localhost:1/0", code=3)
