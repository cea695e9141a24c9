"""`redbox relay`: publishes the events of a box until it is stopped."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from redbox.cli.printing.output import echo_json
from redbox.cli.relay.settings import FIELDS, RelaySettings, SettingError
from redbox.cli.session import Session, pass_session
from redbox.service import HOST

if TYPE_CHECKING:
    from redbox import Box
    from redbox.cli.relay.config import Config
    from redbox.cli.relay.run import Ended
    from redbox.relay import Relay

#: Options that are about the process. All others are about one relay, and with --config they are fields of the file.
PROCESS_OPTIONS: Final = ("config", "once", "log", "metrics_port", "metrics_host", "quiet")


def relay_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options that are about one relay."""
    for field in reversed(FIELDS.values()):
        if field.flags:
            command = click.option(*field.flags, **field.option)(command)
    return command


config_option = click.option(
    "--config", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
    help="Run the relays of this redbox.toml, instead of --to.",
)  # fmt: skip


@click.command("relay")
@relay_options
@click.option(
    "--once",
    is_flag=True,
    help="Publish the available events, then exit; with code 1 if some fail and stay PENDING, or the box is paused.",
)
@config_option
@click.option(
    "--metrics-port", type=click.IntRange(0, 65535), metavar="PORT",
    help="Port for /metrics, /livez and /readyz; 0 for any free port.",
)  # fmt: skip
@click.option("--metrics-host", metavar="HOST", help=f"Address for --metrics-port.  [default: {HOST}]")
@click.option("--log", type=click.Choice(["text", "json"]), help="Format of the log on stderr.  [default: text]")
@click.option("-q", "--quiet", is_flag=True, help="Log warnings and errors only.")
@pass_session
def relay_command(
    session: Session,
    /,
    config: Path | None,
    once: bool,
    log: str | None,
    metrics_port: int | None,
    metrics_host: str | None,
    quiet: bool,
    **options: Any,
) -> None:
    """Publish the events of a box to a target.

    Runs until SIGTERM or SIGINT. Each event is published at least once. A failed event is retried after the delay of
    --retry, and marked DEAD when --attempts are used up. While the target is down, the circuit breaker is open: no
    attempts are used up, and the relay publishes only a sample of events, at least every 30 s. Any number of relays may
    serve one box. After the first signal, events being published have --grace to finish; a second signal exits at once.

    \b
    Examples:
      redbox relay --to https://hooks.example.com/orders
      redbox relay --to https://hooks.example.com/orders --retry fixed:10m --attempts 3 --no-breaker
      redbox relay --to https://hooks.example.com/orders --retry fixed:10m --attempts 3 --max-age 1d
      redbox relay --to python:shop.events:publish --retry fixed:0 --attempts 3 --no-breaker --dead-to stdout:
      redbox relay --to https://hooks.example.com/orders -o secret='${HOOK_SECRET}' --metrics-port 9100
      redbox --box orders relay --to stdout: --once
      redbox --box orders relay --to box:billing
      redbox relay --config redbox.toml --log json
    """
    import logging

    from redbox.cli import process
    from redbox.cli.printing import logs

    ctx = click.get_current_context()
    if config is None:
        if options["to"] is None:
            raise click.UsageError("Missing option '--to', the target; or give --config FILE", ctx)
        settings = [RelaySettings(box=session.box_name, **options)]
        relays, sources = [_open(ctx, session, settings[0])], None
    else:
        from_file = load_config(ctx, config, PROCESS_OPTIONS)
        if ctx.parent is not None and _typed(ctx.parent, "box_name"):
            raise click.UsageError("--box cannot be combined with --config: the file names the boxes", ctx)
        relays, sources = open_all(session, config, from_file)
        settings = from_file.relay
        log = log or from_file.log
        metrics_port = from_file.metrics_port if metrics_port is None else metrics_port
        metrics_host = metrics_host or from_file.metrics_host
    if metrics_host is not None and metrics_port is None:
        raise click.UsageError("--metrics-host without --metrics-port serves nothing", ctx)

    from redbox.cli.relay.run import RelayRun, Watch

    watch = None if metrics_port is None else Watch(metrics_host or HOST, metrics_port)
    how: logs.Format = "json" if log == "json" or (log is None and session.output.as_json) else "text"
    level = logging.DEBUG if session.debug else logging.WARNING if quiet else logging.INFO
    policies = [each.policy_text(relay) for each, relay in zip(settings, relays, strict=True)]
    run = RelayRun(relays, policies, once=once, watch=watch, url_sources=sources)
    with logs.to_stderr(how, level, name_box=len(relays) > 1):
        code = process.run(run.run(), lambda ended: _finish(session, settings, run.seconds, ended))
    ctx.exit(code)


def _finish(session: Session, settings: list[RelaySettings], seconds: float, ended: list[Ended]) -> int:
    """Prints the summary if JSON was asked for; returns the exit code."""
    import msgspec

    from redbox.cli.relay.run import as_json

    if session.output.as_json:
        # If events are written to stdout, their reader must find nothing else there.
        on_stderr = any(each.writes_stdout for each in settings)
        echo_json(msgspec.json.encode(as_json(ended, seconds)).decode(), err=on_stderr)
    return 1 if any(each.problem for each in ended) else 0


# --- the relays ------------------------------------------------------------------------------------------------


def open_relay(session: Session, options: dict[str, Any]) -> tuple[Relay, str]:
    """The relay of these options, and its policy in words."""
    settings = RelaySettings(box=session.box_name, **options)
    relay = _open(click.get_current_context(), session, settings)
    return relay, settings.policy_text(relay)


def _open(ctx: click.Context, session: Session, settings: RelaySettings) -> Relay:
    try:
        return settings.open(session.url, Path())
    except SettingError as error:
        flag = next(flag for flag in FIELDS[error.setting].flags if flag.startswith("--"))
        raise click.BadParameter(error.problem, ctx, param_hint=f"'{flag}'") from error


def load_config(ctx: click.Context, path: Path, process_options: Collection[str]) -> Config:
    """The file. Options of the command that are about one relay are refused: they are fields of the file."""
    from redbox.cli.relay.config import load

    for param in ctx.command.params:
        if param.name not in process_options and _typed(ctx, str(param.name)):
            raise click.UsageError(f"{param.opts[-1]} cannot be combined with --config: write it into the file", ctx)
    return load(path)


def _typed(ctx: click.Context, name: str) -> bool:
    from click.core import ParameterSource

    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def open_all(
    session: Session, path: Path, config: Config, lenders: dict[str, Box] | None = None
) -> tuple[list[Relay], list[str]]:
    """The relays of the file, and where the URL of each one's store was given. The boxes of one store share its
    connections; `lenders` gets the first of each."""
    from redbox.cli.relay.config import open_relays, url_sources

    def default_url() -> str:
        if not session.has_url:
            raise click.UsageError(
                f'no store: write url = "redis://localhost:6379/0" into {path}, or give --url before the command, or '
                "set $REDBOX_URL"
            )
        return session.url

    return open_relays(path, config, default_url, lenders), url_sources(path, config)
