"""`redbox config`: checks a redbox.toml without running it."""

from __future__ import annotations

from pathlib import Path

import click

from redbox.cli.printing.output import echo_json
from redbox.cli.relay.command import open_all
from redbox.cli.session import Session, pass_session


@click.group("config")
def config_command() -> None:
    """Check a configuration file.

    \b
    Examples:
      redbox config check redbox.toml
    """


@config_command.command("check")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@pass_session
def check_command(session: Session, /, file: Path) -> None:
    """Check a redbox.toml, and show where its events go.

    Checks the file as a whole, as `redbox relay --config` and `redbox up --config` do before they start, and connects
    to nothing. An error names the line; the exit code is then 2.

    \b
    Examples:
      redbox config check redbox.toml
      redbox --json config check redbox.toml
    """
    import msgspec

    from redbox.cli.relay.config import load
    from redbox.cli.relay.graph import as_json, as_lines, legs_of

    config = load(file)
    relays, _ = open_all(session, file, config)
    legs = legs_of(config, relays)
    if session.output.as_json:
        echo_json(msgspec.json.encode(as_json(file, legs)).decode())
        return
    for line in as_lines(legs):
        click.echo(line)
    boxes = len(relays)
    session.output.note(f"{file} is valid: {boxes} relay{'' if boxes == 1 else 's'}")
