"""`redbox why`."""

from __future__ import annotations

import ast
import asyncio
import shlex
from contextlib import AsyncExitStack
from pathlib import Path

import click
import pytest

from redbox import Box, Event, Situation, keys
from redbox.box.why import explanation
from redbox.cli.app import COMMANDS, cli
from redbox.testing import advance
from redbox.testing.conformance.operations.test_why import SCENES
from tests.cli.conftest import Redbox

pytestmark = pytest.mark.req("RO-4")


def dead(redbox: Redbox) -> None:
    redbox.kill(Event("order.paid", event_id="e"), reason="HTTP 422")
    redbox.within(lambda box: advance(box, minutes=3))


def test_why_as_text(redbox: Redbox):
    dead(redbox)
    lines = redbox("why", "e").stdout.splitlines()
    assert lines[0] == "event e of type order.paid: dead"
    assert lines[1].startswith("It has been DEAD for 3 min")
    assert lines[2:] == [
        "Nothing more happens to it unless it is replayed.",
        "To return it to PENDING:",
        f"  redbox --url {redbox.url} dead replay e",
    ]


def test_why_as_json(redbox: Redbox):
    dead(redbox)
    found = redbox.json("why", "e")
    assert list(found) == ["headline", "subject", "situation", "at", "sentences", "next_steps", "evidence", "found"]
    assert (found["situation"], found["found"]) == ("dead", True)
    assert found["next_steps"] == [
        {"purpose": "return it to PENDING", "command": f"redbox --url {redbox.url} dead replay e"}
    ]
    assert (found["evidence"]["state"], found["evidence"]["last_error"]) == ("DEAD", "HTTP 422")
    assert found["at"] > found["evidence"]["died_at"]


def test_the_printed_command_works(redbox: Redbox):
    dead(redbox)
    _, *command = shlex.split(redbox.json("why", "e")["next_steps"][0]["command"])
    redbox(*command, "--yes", url=None)
    assert redbox.json("why", "e")["situation"] == "no_relay"


@pytest.mark.parametrize("name", ["two words", "semi;colon", "it's", "--all"])
def test_commands_are_quoted_for_a_shell(redbox: Redbox, name: str):
    redbox.put(Event("a", event_id="e", ordering_key=name))
    redbox.within(_publish)
    (step,) = redbox.json("why", f"--key={name}")["next_steps"]
    assert shlex.split(step["command"]) == ["redbox", "--url", redbox.url, "list", f"--key={name}"]


async def _publish(box: Box) -> None:
    await box.ack(await box.claim("r1"))


def test_an_event_that_does_not_exist(redbox: Redbox):
    redbox.put(Event("a"))
    result = redbox("why", "gone", code=1)
    assert result.stdout.startswith("event gone: unknown\nThere is no event gone in box default")
    assert redbox.json("why", "gone", code=1)["found"] is False


def test_a_box_that_does_not_exist(redbox: Redbox):
    assert redbox.error("why", code=1).startswith("there is no box 'default'")


def test_why_of_the_box_and_of_keys(redbox: Redbox):
    redbox.put(Event("a", event_id="e", ordering_key="k", unique_key="u"))
    assert redbox("why").stdout.startswith("box default: no relay\nNo relay is running")
    assert redbox("why", "--key", "k").stdout.startswith("ordering key 'k': no relay\nThe head of its line is event e")
    assert redbox("why", "--unique", "u").stdout.startswith("unique key 'u': no relay\nEvent e holds it")


@pytest.mark.parametrize(
    "arguments", [("e", "--key", "k"), ("--key", "k", "--unique", "u"), ("",), ("--key", ""), ("a", "b")]
)
def test_wrong_usage(redbox: Redbox, arguments: tuple[str, ...]):
    redbox.error("why", *arguments, code=2)


def test_the_box_is_repeated_if_it_was_given(redbox: Redbox, monkeypatch: pytest.MonkeyPatch):
    redbox.put(Event("a", event_id="e"), box="orders")
    monkeypatch.setenv("REDBOX_URL", redbox.url)
    (step,) = redbox.json("--box", "orders", "why", url=None)["next_steps"]
    assert step["command"] == "redbox --box orders relay --to URL"
    monkeypatch.setenv("REDBOX_BOX", "orders")
    (step,) = redbox.json("why", url=None)["next_steps"]
    assert step["command"] == "redbox relay --to URL"


def test_a_password_is_not_repeated(redbox: Redbox, monkeypatch: pytest.MonkeyPatch):
    redbox.put(Event("a", event_id="e"))
    real = redbox.url
    opened = Box.open
    monkeypatch.setattr(Box, "open", lambda _, **options: opened(real, **options))
    result = redbox("why", url="redis://:s3cret@localhost:1/0")
    assert "redbox relay --to URL" in result.stdout
    assert "s3cret" not in result.output
    assert "the URL is not repeated, since it may hold a password: set $REDBOX_URL" in result.stderr


def test_no_control_character_reaches_a_terminal(redbox: Redbox):
    redbox.kill(Event("a", event_id="e"), reason="\x1b[2J\u202e")
    for arguments in (("why", "e"), ("why",), ("why", "--key", "k\x7f"), ("why", "--unique", "\x1b[2J")):
        assert redbox(*arguments).stdout.replace("\n", "").isprintable()


def test_a_damaged_box_is_explained(redbox: Redbox):
    redbox.put(Event("a", event_id="e"))
    redbox.within(lambda box: box._store.exchange([("HDEL", keys.event(box.name, "e"), "state")]))
    assert redbox.json("why", "e")["situation"] == "damaged"


# --- the commands that explanations name -------------------------------------------------------------------------


def steps_of_sources() -> set[tuple[str, ...]]:
    """Every command in the source, by the words before its arguments."""
    folder = Path(explanation.__file__).parent
    found = set()
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id == "Step" and isinstance(node.args[1], ast.Tuple):
                words = [part.value for part in node.args[1].elts if isinstance(part, ast.Constant)]
                keyed = [part for part in node.args[1].elts if isinstance(part, ast.JoinedStr)]
                beginnings = [str(part.values[0].value) for part in keyed if isinstance(part.values[0], ast.Constant)]
                if words:
                    found.add((*words, *(f"{beginning}5" for beginning in beginnings)))
            elif node.func.id == "by_id":
                found.add((*[part.value for part in node.args[1:] if isinstance(part, ast.Constant)], "ID"))
    return found


STEPS = sorted(steps_of_sources())


def test_the_commands_are_found():
    assert ("dead", "replay", "ID") in STEPS
    assert ("resume", "--key=5") in STEPS
    assert ("configure", "max_in_flight=5") in STEPS
    assert len(STEPS) >= 15


@pytest.mark.parametrize("arguments", STEPS, ids=" ".join)
def test_every_command_of_an_explanation_is_a_command_of_redbox(arguments: tuple[str, ...]):
    parses(arguments)


def parses(arguments: tuple[str, ...]) -> None:
    """Parses a command line as click would, without running it."""
    assert arguments[0] in COMMANDS
    # With the settings of the application: click remembers the names of the help option that it sees first.
    context = click.Context(cli, info_name="redbox", **cli.context_settings)
    command, name, rest = cli, "redbox", list(arguments)
    while isinstance(command, click.Group):
        name, command, rest = command.resolve_command(context, rest)
        assert command is not None, name
    command.make_context(name, rest, parent=context)


@pytest.mark.parametrize("name", SCENES)
def test_the_commands_of_every_situation_parse(redbox: Redbox, name: str):
    """With the ids and keys of real explanations."""

    async def run() -> list[tuple[str, ...]]:
        async with Box.open(redbox.url) as box, AsyncExitStack() as stack:
            asked = await SCENES[name](box, stack)
            found = await box.why(asked.event_id, key=asked.key, unique_key=asked.unique_key)
            return [step.arguments for step in found.next_steps]

    for arguments in asyncio.run(run()):
        parses(arguments)


def test_every_situation_occurs():
    folder = Path(explanation.__file__).parent
    sources = "".join(path.read_text() for path in folder.glob("*.py") if path.name != "explanation.py")
    for situation in Situation:
        assert f"Situation.{situation.name}" in sources
