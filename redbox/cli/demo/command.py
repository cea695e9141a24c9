"""`redbox demo`: orders, a relay, a service that sometimes fails, and a dead event, narrated as it happens."""

from __future__ import annotations

from pathlib import Path

import click

from redbox.cli.session import Session, pass_session


@click.command("demo")
@pass_session
def demo_command(session: Session, /) -> None:
    """Show deliveries, retries, a dead event and its replay.

    A relay delivers over HTTP to a local service that sometimes fails. The demo runs on an embedded server in a
    temporary directory and removes it at the end. It ignores --url and touches no other store. The exit code is 1 if
    the counts at the end do not add up.

    \b
    Examples:
      redbox demo
      redbox --json demo | jq .totals
    """
    import logging
    import tempfile

    from redbox.cli.demo import play as demo_play
    from redbox.cli.demo.story import Story
    from redbox.publishers.registry import open_publisher
    from redbox.store.embedded import server as embedded

    embedded.find_binary()  # these two calls report a missing extra before the demo begins
    open_publisher("http://127.0.0.1/")
    story = Story(session.output)
    with tempfile.TemporaryDirectory(prefix="redbox-demo-") as directory:
        data = str(Path(directory) / "data")
        story.begin(data)
        log = logging.getLogger("redbox")
        level = log.level
        log.setLevel(logging.CRITICAL)  # the story reports the same
        try:
            session.run(demo_play.play(data, story))
        finally:
            log.setLevel(level)
            embedded.wait_stopped(data)
    story.end(directory)
