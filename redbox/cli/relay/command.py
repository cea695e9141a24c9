"""`redbox relay`: publishes what is in a box, until it is told to stop."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from redbox.cli.output import echo_json
from redbox.cli.parameters import name_value_pairs
from redbox.cli.session import Session, pass_session

if TYPE_CHECKING:
    from redbox.cli.relay.config import Config
    from redbox.cli.relay.run import Ended
    from redbox.cli.relay.settings import RelaySettings
    from redbox.relay import Relay

#: Options that are about the process; all others are about one relay, and stand in the file when there is one.
PROCESS_OPTIONS: Final = ("config", "once", "log", "metrics_port", "metrics_host", "quiet")
METRICS_HOST: Final = "127.0.0.1"


@click.command("relay")
@click.option(
    "--to", metavar="URL", help="Where to publish: https://..., redis+stream://..., stdout:, python:mod:func."
)
@click.option(
    "-o", "--option", "options", multiple=True, callback=name_value_pairs, metavar="NAME=VALUE",
    help="An option of the target; repeatable. Secrets only as '${NAME}' or file:PATH.",
)  # fmt: skip
@click.option("--retry", metavar="POLICY", help="fixed:10m, fixed:0 or exp:1s..5m.  [default: exp:1s..5m]")
@click.option("--attempts", metavar="N", help="An event dies after so many; or unlimited.  [default: 10]")
@click.option("--max-age", metavar="DURATION", help="It also dies if not published so long after it was due.")
@click.option("--dead-to", metavar="URL", help="Gets each event that dies, before it does.")
@click.option(
    "--dead-option", "dead_options", multiple=True, callback=name_value_pairs, metavar="NAME=VALUE",
    help="An option of --dead-to; repeatable.",
)  # fmt: skip
@click.option("--on-success", type=click.Choice(["keep", "delete"]), help="With published events.  [default: keep]")
@click.option("--on-dead", type=click.Choice(["keep", "drop"]), help="With dead events.  [default: keep]")
@click.option(
    "--concurrency", type=click.IntRange(min=1), metavar="N", help="Events under way at once.  [default: 100]"
)
@click.option(
    "--batch", type=click.IntRange(1, 1000), metavar="N", help="Events claimed at once, at most.  [default: 100]"
)
@click.option("--lease", metavar="DURATION", help="How long claims hold if this process dies.  [default: 30s]")
@click.option("--time-limit", metavar="DURATION", help="For one publish; or unlimited.  [default: 30s]")
@click.option("--grace", metavar="DURATION", help="For what is under way when it is stopped.  [default: 10s]")
@click.option(
    "--name", metavar="NAME", help="Of this relay; must differ from others'.  [default: host, pid and chance]"
)
@click.option(
    "--no-breaker", "breaker", flag_value=False, type=bool, default=True, help="Go on whatever the target answers."
)
@click.option("--once", is_flag=True, help="Publish what is available now, and exit; 1 if the breaker opens.")
@click.option(
    "--config", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
    help="Run the relays of this redbox.toml, instead of one --to.",
)  # fmt: skip
@click.option(
    "--metrics-port", type=click.IntRange(0, 65535), metavar="PORT", help="Serve /metrics, /livez and /readyz there."
)
@click.option("--metrics-host", metavar="HOST", help=f"On which address.  [default: {METRICS_HOST}]")
@click.option("--log", type=click.Choice(["text", "json"]), help="How to log, on stderr.  [default: text]")
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
    """Publish the events of the box to a target, each at least once, until SIGTERM or SIGINT.

    What the target acknowledges is done; what fails is tried again as --retry says, and after --attempts it is dead. A
    target that is down opens the breaker: nothing is claimed until it is back. Any number of relays may serve one box.
    The first signal lets what is under way end within --grace; a second exits at once.

    \b
    Examples:
      redbox relay --to https://hooks.example.com/orders
      redbox relay --to https://hooks.example.com/orders --retry fixed:10m --attempts 3 --no-breaker
      redbox relay --to https://hooks.example.com/orders --retry fixed:10m --attempts 3 --max-age 1d
      redbox relay --to python:shop.events:publish --retry fixed:0 --attempts 3 --no-breaker --dead-to stdout:
      redbox relay --to https://hooks.example.com/orders -o secret='${HOOK_SECRET}' --metrics-port 9100
      redbox --box orders relay --to stdout: --once
      redbox relay --config redbox.toml --log json
    """
    import logging

    from redbox.cli import logs, process

    ctx = click.get_current_context()
    if config is None:
        if options["to"] is None:
            raise click.UsageError("Missing option '--to', which says where to publish; or give --config FILE", ctx)
        settings = [_settings(session, options)]
        relays = [_open(ctx, session, settings[0])]
    else:
        from_file = _load(ctx, config)
        relays, settings = _open_all(session, config, from_file), from_file.relay
        log = log or from_file.log
        metrics_port = from_file.metrics_port if metrics_port is None else metrics_port
        metrics_host = metrics_host or from_file.metrics_host
    if metrics_host is not None and metrics_port is None:
        raise click.UsageError("--metrics-host without --metrics-port serves nothing", ctx)

    from redbox.cli.relay.run import RelayRun, Watch

    watch = None if metrics_port is None else Watch(metrics_host or METRICS_HOST, metrics_port)
    how: logs.Format = "json" if log == "json" or (log is None and session.output.as_json) else "text"
    level = logging.DEBUG if session.debug else logging.WARNING if quiet else logging.INFO
    run = RelayRun(relays, [each.policy() for each in settings], once=once, watch=watch)
    with logs.to_stderr(how, level, name_box=len(relays) > 1):
        code = process.run(run.run(), lambda ended: _finish(session, settings, run.seconds, ended))
    ctx.exit(code)


def _finish(session: Session, settings: list[RelaySettings], seconds: float, ended: list[Ended]) -> int:
    """The last word, where it was asked for as JSON; the exit code."""
    import msgspec

    from redbox.cli.relay.run import as_json

    if session.output.as_json:
        # Events go to stdout there, and a reader of events must not find something else.
        beside = any(each.writes_stdout for each in settings)
        echo_json(msgspec.json.encode(as_json(ended, seconds)).decode(), err=beside)
    return 1 if any(each.problem for each in ended) else 0


# --- what to run -----------------------------------------------------------------------------------------------


def _settings(session: Session, options: dict[str, Any]) -> RelaySettings:
    from redbox.cli.relay.settings import RelaySettings

    return RelaySettings(box=session.box_name, **options)


def _open(ctx: click.Context, session: Session, settings: RelaySettings) -> Relay:
    from redbox.cli.relay.settings import SettingError

    try:
        return settings.open(session.url, Path())
    except SettingError as error:
        option = {"options": "option", "dead_options": "dead-option"}.get(error.setting, error.setting)
        raise click.BadParameter(error.problem, ctx, param_hint=f"'--{option.replace('_', '-')}'") from error


def _load(ctx: click.Context, path: Path) -> Config:
    from click.core import ParameterSource

    from redbox.cli.relay.config import load

    def typed(where: click.Context, name: str) -> bool:
        return where.get_parameter_source(name) is ParameterSource.COMMANDLINE

    for param in ctx.command.params:
        if param.name not in PROCESS_OPTIONS and typed(ctx, str(param.name)):
            raise click.UsageError(f"with --config the file says it: leave out {param.opts[-1]}", ctx)
    if ctx.parent is not None and typed(ctx.parent, "box_name"):
        raise click.UsageError("with --config the file names the boxes: leave out --box", ctx)
    return load(path)


def _open_all(session: Session, path: Path, config: Config) -> list[Relay]:
    from redbox.cli.relay.config import open_relays

    return open_relays(path, config, lambda: session.url)
