"""`redbox why`: why an event, a line, a unique key or a box is as it is."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from redbox.cli.printing.failures import FAILED
from redbox.cli.printing.output import printable
from redbox.cli.session import Session, pass_session

if TYPE_CHECKING:
    from redbox.box.why import Explanation


@click.command("why")
@click.argument("event_id", metavar="[ID]", required=False)
@click.option("--key", metavar="KEY", help="Explain the line of this ordering key.")
@click.option("--unique", "unique_key", metavar="KEY", help="Explain which event holds this unique key.")
@pass_session
@click.pass_context
def why_command(
    ctx: click.Context, session: Session, /, event_id: str | None, key: str | None, unique_key: str | None
) -> None:
    """Explain why an event, or the box, is stuck.

    With an ID: where the event is, since when and why, what happens next, and the command that changes it. Without
    one: the most likely reason why the events of the box are not delivered. Changes nothing.

    The exit code is 1 if the box does not know the event. With --json, `situation` is one word for scripts, and
    `evidence` has the facts.

    \b
    Examples:
      redbox why
      redbox why 01938a4e-5b1f-7c3d-9e2a-6f0d1c2b3a49
      redbox why --key order-7
      redbox why --unique invoice-2024-03
      redbox --json why | jq -r .situation
    """
    given = [value for value in (event_id, key, unique_key) if value is not None]
    if len(given) > 1:
        raise click.UsageError("ask about one at a time: an ID, --key or --unique", ctx)
    if "" in given:
        raise click.UsageError("an ID or a key must not be empty", ctx)

    async def read() -> Explanation:
        async with session.existing() as box:
            return await box.why(event_id, key=key, unique_key=unique_key)

    explanation = session.run(read())
    options = given_options(ctx)
    if session.output.as_json:
        session.output.json(explanation.as_json(options))
    else:
        _show(session, explanation, options)
    ctx.exit(0 if explanation.found else FAILED)


def given_options(ctx: click.Context) -> tuple[str, ...]:
    """The store and the box, if they were given on this command line. A URL with a password is not repeated: the shell
    takes it from $REDBOX_URL."""
    root = ctx.find_root()
    options: list[str] = []
    for name, option in (("url", "--url"), ("box_name", "--box")):
        if root.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            value = str(root.params[name])
            if name == "url" and holds_secret(value):
                continue
            options += [option, value]
    return tuple(options)


def as_typed(*arguments: str) -> str:
    """A command on the store and the box of the present one, for a shell."""
    return printable(shlex.join(("redbox", *given_options(click.get_current_context()), *arguments)))


def holds_secret(url: str) -> bool:
    """Whether a URL may hold a password, in its user information or its options."""
    return "@" in url or "?" in url


def _show(session: Session, explanation: Explanation, options: tuple[str, ...]) -> None:
    output = session.output
    output.paragraph(printable(explanation.headline), "bold")
    for sentence in explanation.sentences:
        output.paragraph(printable(sentence))
    for step in explanation.next_steps:
        output.paragraph(printable(f"To {step.purpose}:"))
        output.text(f"  {printable(step.command(options))}", "cyan")
    source = click.get_current_context().find_root()
    given = source.get_parameter_source("url") is ParameterSource.COMMANDLINE
    if explanation.next_steps and given and holds_secret(str(source.params["url"])):
        output.note(
            "the URL is not repeated, since it may hold a password: set $REDBOX_URL, or add --url to the command"
        )
