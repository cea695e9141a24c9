"""The root command: global options, errors as sentences, exit codes."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from traceback import walk_tb
from typing import Any, Final, NoReturn

import click

from redbox.cli.printing.failures import Failure, describe_failure
from redbox.cli.printing.output import echo_json, printable, wrap_message
from redbox.cli.session import Session
from redbox.errors import RedboxError

#: Command → its module, in the order of `redbox --help`.
COMMANDS: Final = {
    "put": "put",
    "relay": "relay.command",
    "up": "service",
    "serve": "service",
    "list": "inspect",
    "show": "inspect",
    "why": "why",
    "stats": "stats",
    "top": "top.command",
    "boxes": "stats",
    "dead": "dead.group",
    "kill": "operate",
    "release": "operate",
    "reschedule": "operate",
    "drop": "operate",
    "pause": "box_settings",
    "resume": "box_settings",
    "configure": "box_settings",
    "config": "config",
    "reap": "upkeep",
    "sweep": "upkeep",
    "log": "upkeep",
    "audit": "audit",
    "doctor": "doctor",
    "exporter": "exporter",
    "pipeline": "pipeline.group",
    "conform": "conform",
    "demo": "demo.command",
}
NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
GLOBAL_OPTIONS: Final = ("--url", "--box", "--json", "--debug", "--version")


class Group(click.Group):
    """Imports each command on demand, and reports every failure as one sentence with an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click passes it
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - same
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"redbox.cli.{COMMANDS[cmd_name]}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        typed = list(sys.argv[1:] if args is None else args)
        if sys.stdout is None:
            _fail(RedboxError("standard output is closed; to discard the results, redirect it to /dev/null"), typed)
        try:
            code = super().main(typed, prog_name or "redbox", complete_var, standalone_mode=False, **extra)
            sys.stdout.flush()
        except BrokenPipeError:  # the reader closed the pipe
            _silence_stdout()
            sys.exit(1)
        except Exception as error:
            if isinstance(error, OSError) and _stdout_is_full(error):
                _silence_stdout()
                error = RedboxError(f"cannot write to standard output: {error.strerror}")
            _fail(error, typed)
        except KeyboardInterrupt:
            _fail(click.Abort(), typed)
        sys.exit(code if isinstance(code, int) else 0)


def _fail(error: Exception, typed: list[str]) -> NoReturn:
    """Reports the error on stderr and exits. Searches `typed` for --debug and --json, since parsing may have failed."""
    if "--debug" in typed and not isinstance(error, click.ClickException | click.Abort):
        import traceback

        click.echo(printable("".join(traceback.format_exception(error)), keep="\n"), err=True, nl=False)
    failure = describe_failure(error)
    if isinstance(error, click.NoSuchOption) and error.option_name in GLOBAL_OPTIONS:
        name = error.option_name
        failure = Failure(failure.error, f"{name} goes before the command: redbox {name} ...", failure.exit_code)
    if "--json" in typed:
        echo_json(failure.as_json(), err=True)
    else:
        click.echo(wrap_message(f"error: {printable(failure.message)}"), err=True)
    sys.exit(failure.exit_code)


def _stdout_is_full(error: OSError) -> bool:
    """Whether the command line failed to write its results because the device is full."""
    if error.errno not in NO_ROOM or error.filename is not None or error.__traceback__ is None:
        return False
    *_, (frame, _) = walk_tb(error.__traceback__)
    module: str = frame.f_globals.get("__name__", "")
    return module.startswith(("click.", "redbox.cli."))


def _silence_stdout() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())


@click.group(
    cls=Group,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--url", envvar="REDBOX_URL", show_envvar=True, metavar="URL", help="URL of the store, such as redis://host:6379/0."
)
@click.option(
    "--box", "box_name", envvar="REDBOX_BOX", show_envvar=True, default="default", show_default=True, metavar="NAME",
    help="Name of the box.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one document, or one per line for lists.")
@click.option("--debug", is_flag=True, help="Show tracebacks of errors, and everything that a relay logs.")
@click.option("--version", is_flag=True, help="Show the version and exit.")
@click.pass_context
def cli(ctx: click.Context, url: str | None, box_name: str, as_json: bool, debug: bool, version: bool) -> None:
    """Deliver events at least once through a Redis-backed outbox.

    Global options go before the command. If neither --url nor $REDBOX_URL is set, the directory ./.redbox is used if
    it exists. URLs: redis://, rediss://, unix://, redis+cluster://, redis+sentinel://, embedded:DIRECTORY.

    Durations are seconds, or numbers with units: 250ms, 10m, 1h30m, 7d. Times are ISO 8601 with a zone.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 store not reachable.

    \b
    Examples:
      redbox demo
      redbox --url redis://localhost:6379/0 put user.created '{"id": 42}'
      redbox --box orders stats
      redbox --json dead list --type 'user.*' | jq .last_error
    """
    ctx.obj = Session(url or None, box_name, as_json, debug)
    if version:
        from redbox import __version__

        ctx.obj.output.document({"version": __version__}, f"redbox {__version__}")
        ctx.exit()
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(2)


def main() -> None:
    """The entry point of the command `redbox`."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # an encoding without arrows must not make a command fail
    cli()
