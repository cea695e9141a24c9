"""`redbox up` and `redbox serve`: the HTTP service, with and without a relay."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from redbox.cli.relay.command import config_option, load_config, open_all, open_relay, relay_options
from redbox.cli.session import Session, pass_session
from redbox.service import HOST

if TYPE_CHECKING:
    from redbox import Box
    from redbox.relay import Relay
    from redbox.service.http.server import HttpServer
    from redbox.service.http.tokens import Tokens

PORT: Final = 8080


@dataclasses.dataclass(kw_only=True)
class Serving:
    """The options of the HTTP service."""

    host: str
    port: int
    token_file: Path | None
    allow_host: tuple[str, ...]
    tls_cert: Path | None
    tls_key: Path | None
    log: str | None
    quiet: bool

    @classmethod
    def take(cls, options: dict[str, Any]) -> Serving:
        """Removes them from the options of the command."""
        return cls(**{field.name: options.pop(field.name) for field in dataclasses.fields(cls)})


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
                "--token-file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
                help="Tokens that callers need: lines of `name scopes token`. Also read from $REDBOX_TOKENS.",
            ),
            click.option(
                "--allow-host", multiple=True, metavar="NAME",
                help="Host name under which the service is reached, if it is not --host; repeatable.",
            ),
            click.option(
                "--tls-cert", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
                help="Certificate (PEM) for HTTPS.",
            ),
            click.option(
                "--tls-key", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
                help="Key of --tls-cert, if that file does not have it.",
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
@config_option
@service_options
@pass_session
def up_command(session: Session, /, config: Path | None, **options: Any) -> None:
    """Accept events over HTTP and deliver them to a target.

    Runs the HTTP service, a relay and the dashboard in one process; with --config, all relays of a redbox.toml.
    Without --url and $REDBOX_URL, events are stored in ./.redbox, on an embedded server that the command starts. A
    client gets its answer when its event is persisted.

    \b
    Examples:
      redbox up --to https://hooks.example.com/orders
      redbox --url redis://localhost:6379/0 --box orders up --to https://hooks.example.com/orders --port 9000
      redbox --box orders up --config redbox.toml
      curl -d '{"event_type": "user.created", "payload": {"id": 42}}' http://127.0.0.1:8080/v1/events
    """
    serving = Serving.take(options)
    if config is not None:
        _run_config(session, config, serving)
        return
    if options["to"] is None:
        raise click.UsageError("Missing option '--to', the target; or give --config FILE", click.get_current_context())
    session.use_local()
    relay, policy = open_relay(session, options)
    _run(session, [relay], [policy], serving)


@click.command("serve")
@service_options
@pass_session
def serve_command(session: Session, /, **options: Any) -> None:
    """Accept events over HTTP, without a relay.

    Like `redbox up`, but it delivers nothing: run `redbox relay` on the same store for that.

    \b
    Examples:
      redbox --url redis://localhost:6379/0 serve
      redbox --url redis://localhost:6379/0 --box orders serve --port 9000
    """
    session.use_local()
    _run(session, [], [], Serving.take(options))


def _run_config(session: Session, path: Path, serving: Serving) -> None:
    """Runs the service on the store of the file, with all its relays. The boxes of one store share its connections."""
    from redbox.cli.relay.config import store_url
    from redbox.cli.relay.settings import open_beside

    ctx = click.get_current_context()
    names = {field.name for field in dataclasses.fields(Serving)}
    config = load_config(ctx, path, {"config", *names})
    if config.url is None:
        session.use_local()
    lenders: dict[str, Box] = {}
    relays, sources = open_all(session, path, config, lenders)
    url = store_url(None, config) or session.url
    if config.metrics_port is not None:
        session.output.note(
            f"metrics_port in {path} is for `redbox relay`: the service serves /metrics on its own port"
        )
    serving.log = serving.log or config.log
    policies = [each.policy_text(relay) for each, relay in zip(config.relay, relays, strict=True)]
    _run(session, relays, policies, serving, sources, lambda: open_beside(url, session.box_name, lenders))


def _run(
    session: Session,
    relays: list[Relay],
    policies: list[str],
    serving: Serving,
    url_sources: list[str] | None = None,
    open_box: Callable[[], Box] | None = None,
) -> None:
    import logging

    from redbox.cli import process
    from redbox.cli.printing import logs
    from redbox.cli.relay.run import RelayRun
    from redbox.errors import MissingExtra

    try:
        from redbox.service.app import create_app
        from redbox.service.boxes import Boxes
        from redbox.service.history import recording
        from redbox.service.http.listening import Address
        from redbox.service.http.server import HttpServer
        from redbox.service.http.tokens import VARIABLE, open_tokens
        from redbox.service.options import ServiceOptions
    except ModuleNotFoundError as error:
        raise MissingExtra("redbox up and redbox serve", "service") from error

    if serving.tls_key is not None and serving.tls_cert is None:
        raise click.UsageError("--tls-key without --tls-cert: give the certificate too", click.get_current_context())
    tokens = open_tokens(serving.token_file, os.environ.get(VARIABLE))
    address = Address(
        host=serving.host,
        port=serving.port,
        certificate=None if serving.tls_cert is None else str(serving.tls_cert),
        key=None if serving.tls_key is None else str(serving.tls_key),
        loopback_only=tokens is None,
    )

    async def start(stack: AsyncExitStack) -> None:
        box = await stack.enter_async_context(session.open() if open_box is None else open_box())
        await box.settings()
        boxes = Boxes(box)
        stack.push_async_callback(boxes.aclose)
        await stack.enter_async_context(recording(boxes))
        options = ServiceOptions(
            delivers=bool(relays), tokens=tokens, host_names=(serving.host, *serving.allow_host), relays=tuple(relays)
        )
        app = create_app(boxes, options)
        stack.push_async_callback(app.state.censuses.aclose)
        stack.push_async_callback(app.state.jobs.aclose)
        server = await stack.enter_async_context(HttpServer(app, address))
        stack.callback(app.state.live.close)
        stack.enter_context(_on_hangup(server, tokens))
        session.output.note(f"redbox is up: {server.url}", url=server.url)
        session.output.note(f"dashboard: {server.url}/")
        session.output.note(f"events of box {box.name} are stored on {box.where}")
        if tokens is None:
            session.output.note(
                "there are no tokens: everyone on this machine may use it; --token-file FILE restricts it to callers "
                "with a token"
            )
        if address.certificate is None and not server.loopback_only:
            session.output.note(
                "without TLS, tokens and events are readable on the network; give --tls-cert FILE, or listen on "
                f"{HOST} behind a proxy that has TLS"
            )
        login = "" if tokens is None else "-H 'Authorization: Bearer TOKEN' "
        session.output.note(
            f'try: curl {login}-d \'{{"event_type": "user.created", "payload": {{"id": 42}}}}\' {server.url}/v1/events'
        )

    log = serving.log
    how: logs.Format = "json" if log == "json" or (log is None and session.output.as_json) else "text"
    level = logging.DEBUG if session.debug else logging.WARNING if serving.quiet else logging.INFO
    run = RelayRun(relays, policies, url_sources=url_sources, start_beside=start)
    with logs.to_stderr(how, level, name_box=len(relays) > 1):
        code = process.run(run.run(), lambda _: 0)
    click.get_current_context().exit(code)


@contextmanager
def _on_hangup(server: HttpServer, tokens: Tokens | None) -> Iterator[None]:
    """While the block runs, SIGHUP reads the tokens and the certificate again."""
    import asyncio
    import logging
    import signal

    from redbox.errors import UsageError

    def reload() -> None:
        if tokens is not None:
            tokens.reload()
        try:
            server.load_certificate()
        except UsageError as error:
            logging.getLogger("redbox.service").error("%s; the one read before stays in use", error)

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, reload)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
