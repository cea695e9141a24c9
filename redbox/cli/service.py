"""`redbox up` and `redbox serve`: the HTTP service, with and without a relay."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

import click

from redbox.cli.relay.command import open_relay, relay_options
from redbox.cli.session import Session, pass_session

if TYPE_CHECKING:
    from redbox.relay import Relay

HOST: Final = "127.0.0.1"
PORT: Final = 8080


def service_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of the HTTP service."""
    for add in reversed(
        (
            click.option("--host", default=HOST, show_default=True, metavar="HOST", help="Address to listen on."),
            click.option(
                "--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, metavar="PORT",
                help="Port; 0 for any free port.",
            ),
            click.option(
                "--log", type=click.Choice(["text", "json"]), help="Format of the log on stderr.  [default: text]"
            ),
            click.option("-q", "--quiet", is_flag=True, help="Log warnings and errors only."),
        )
    ):  # fmt: skip
        command = add(command)
    return command


@click.command("up")
@relay_options
@service_options
@pass_session
def up_command(session: Session, /, host: str, port: int, log: str | None, quiet: bool, **options: Any) -> None:
    """Accept events over HTTP and deliver them to a target.

    Runs the HTTP service, a relay and the dashboard in one process. Without --url and $REDBOX_URL, events are stored in
    ./.redbox, on an embedded server that is started with it. A client gets its answer when its event is persisted.

    \b
    Examples:
      redbox up --to https://hooks.example.com/orders
      redbox --url redis://localhost:6379/0 --box orders up --to https://hooks.example.com/orders --port 9000
      curl -d '{"event_type": "user.created", "payload": {"id": 42}}' http://127.0.0.1:8080/v1/events
    """
    if options["to"] is None:
        raise click.UsageError("Missing option '--to', the target", click.get_current_context())
    session.use_local()
    relay, policy = open_relay(session, options)
    _run(session, [relay], [policy], host, port, log, quiet)


@click.command("serve")
@service_options
@pass_session
def serve_command(session: Session, /, host: str, port: int, log: str | None, quiet: bool) -> None:
    """Accept events over HTTP, without a relay.

    As `redbox up`, but nothing is delivered: run `redbox relay` on the same store for that.

    \b
    Examples:
      redbox --url redis://localhost:6379/0 serve
      redbox --url redis://localhost:6379/0 --box orders serve --port 9000
    """
    session.use_local()
    _run(session, [], [], host, port, log, quiet)


def _run(
    session: Session, relays: list[Relay], policies: list[str], host: str, port: int, log: str | None, quiet: bool
) -> None:
    import logging

    from redbox.cli import logs, process
    from redbox.cli.relay.run import RelayRun
    from redbox.errors import MissingExtra

    try:
        from redbox.service.app import create_app
        from redbox.service.boxes import Boxes
        from redbox.service.history import recording
        from redbox.service.options import ServiceOptions
        from redbox.service.server import Address, HttpServer
    except ModuleNotFoundError as error:
        raise MissingExtra("redbox up and redbox serve", "service") from error

    async def start(stack: AsyncExitStack) -> None:
        box = await stack.enter_async_context(session.open())
        await box.settings()
        boxes = Boxes(box, session.open)
        stack.push_async_callback(boxes.aclose)
        await stack.enter_async_context(recording(boxes))
        app = create_app(boxes, ServiceOptions(delivers=bool(relays)))
        stack.push_async_callback(app.state.censuses.aclose)
        stack.push_async_callback(app.state.jobs.aclose)
        server = await stack.enter_async_context(HttpServer(app, Address(host=host, port=port)))
        stack.callback(app.state.live.close)
        session.output.note(f"redbox is up: {server.url}", url=server.url)
        session.output.note(f"events of box {box.name} are stored on {box.where}")
        session.output.note(
            f'try: curl -d \'{{"event_type": "user.created", "payload": {{"id": 42}}}}\' {server.url}/v1/events'
        )

    how: logs.Format = "json" if log == "json" or (log is None and session.output.as_json) else "text"
    level = logging.DEBUG if session.debug else logging.WARNING if quiet else logging.INFO
    with logs.to_stderr(how, level, name_box=False):
        code = process.run(RelayRun(relays, policies, start_beside=start).run(), lambda _: 0)
    click.get_current_context().exit(code)
