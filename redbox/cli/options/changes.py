"""Commands that change a box: their options, and the question before the change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from redbox.cli.printing.output import can_ask, wrap_message
from redbox.errors import RedboxError

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--dry-run", is_flag=True, help="Only report what would change."),
    click.option("--yes", is_flag=True, help="Skip the confirmation; required without a terminal."),
    click.option("--why", default="", metavar="TEXT", help="Reason, for the operations log."),
    click.option("--who", metavar="NAME", help="Operator, for the operations log.  [default: user@host]"),
)


def change_options(command: Command) -> Command:
    """Adds --dry-run, --yes, --why and --who, as the arguments `dry_run`, `yes`, `why` and `who`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def require_answer(*, yes: bool, dry_run: bool = False) -> None:
    """Refuses a command that could not ask its question. To be called before the store is opened."""
    if not (yes or dry_run or can_ask()):
        context = click.get_current_context()
        raise click.UsageError("confirmation needs a terminal; add --yes or --dry-run", context)


def confirm(question: str, *, yes: bool) -> None:
    """Asks on a terminal. Raises RedboxError if the answer is no."""
    if not yes and not click.confirm(wrap_message(question), err=True):
        raise RedboxError("nothing was changed")


def operator(who: str | None) -> str:
    """The name for the operations log: `who`, or the user of this process."""
    from redbox.box.operate import operator_name

    return operator_name() if who is None else who
