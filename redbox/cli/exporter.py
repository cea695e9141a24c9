"""`redbox exporter`: the metrics of boxes, without a relay."""

from __future__ import annotations

import click

from redbox.cli.session import Session, pass_session
from redbox.service import HOST


@click.command("exporter")
@click.option("--port", type=click.IntRange(0, 65535), required=True, metavar="PORT", help="Port; 0 for any free port.")
@click.option("--host", default=HOST, show_default=True, metavar="HOST", help="Address to listen on.")
@click.option("--all-boxes", is_flag=True, help="Serve all boxes of the store, not only --box.")
@pass_session
def exporter_command(session: Session, /, port: int, host: str, all_boxes: bool) -> None:
    """Serve the metrics of boxes for Prometheus.

    Serves /metrics, /livez and /readyz until SIGTERM or Ctrl-C. The store is read at each scrape, at most once per
    second; while it is not reachable, redbox_up is 0. With --metrics-port, a relay serves the same metrics of its own
    box, and more. Needs the extra `metrics`.

    \b
    Examples:
      redbox --box orders exporter --port 9321
      redbox exporter --port 9321 --host 0.0.0.0 --all-boxes
      curl -s http://127.0.0.1:9321/metrics | grep redbox_relays_alive
    """
    import asyncio

    from redbox.cli import process
    from redbox.service.exporter import Exporter

    session.require_directory()

    async def serve() -> int:
        stopped = asyncio.Event()
        with process.on_signal(lambda _: stopped.set()):
            async with session.open() as box:
                exporter = Exporter(box, port, host, all_boxes=all_boxes)
                async with exporter:
                    what = "all boxes" if all_boxes else f"box {box.name}"
                    where = f"{exporter.url}/metrics"
                    session.output.note(f"metrics of {what} on {session.where}: {where}", url=where)
                    await stopped.wait()
        return 0

    click.get_current_context().exit(process.run(serve(), lambda code: code))
