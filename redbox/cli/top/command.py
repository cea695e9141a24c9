"""`redbox top`: a live screen of one box."""

from __future__ import annotations

import sys

import click

from redbox.cli.session import Session, pass_session


@click.command("top")
@pass_session
def top_command(session: Session, /) -> None:
    """Watch the box live, on a terminal.

    Shows rates, phases, ages, relays with their breakers, and the errors of the newest dead events. Keys: p pause,
    r resume, i or Enter explain an event, w explain the box, ? help, q quit. If the store
    cannot be reached, the screen says so, and it is tried again.

    For scripts and logs, `redbox stats --watch` shows the same counts without a terminal.

    \b
    Examples:
      redbox top
      redbox --box orders top
    """
    if session.output.as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("top needs a terminal; use `redbox stats --watch`", click.get_current_context())

    async def run() -> None:
        from redbox.cli.top.app import Top
        from redbox.cli.top.terminal import Terminal

        colors = session.output.console.color_system
        async with session.existing() as box:
            await box.stats()  # an error of the first reading ends the command
            with Terminal() as terminal:
                await Top(box, terminal, where=session.where, color_system=colors).run()

    session.run(run())
