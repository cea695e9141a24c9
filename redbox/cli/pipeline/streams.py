"""`redbox pipeline drain` and `follow`: the streams as commands."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from redbox.cli.parameters import name_value_pairs
from redbox.cli.pipeline.group import Spark, spark_options, summary
from redbox.cli.process import SIGNALS
from redbox.cli.session import Session, pass_session

if TYPE_CHECKING:
    from redbox.pipeline.jobs.streams import Streamed


def stream_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What both streams take."""
    for option in (
        click.option("--to", required=True, metavar="PATH|SINK",
                     help="Where the events go: a path that Spark can write, or redbox, console or noop."),
        click.option("--format", "format_", default="parquet", show_default=True, metavar="NAME",
                     help="How: parquet, json, orc, or any other sink that takes a path."),
        click.option("--option", "options", multiple=True, callback=name_value_pairs, metavar="NAME=VALUE",
                     help="An option of the sink's, such as compression=zstd; may be repeated."),
        click.option("--checkpoint", metavar="PATH",
                     help="Where Spark keeps its place.  [default: PATH/_checkpoint; a SINK needs it]"),
        click.option("--once", is_flag=True, help="What is there now, and end; else until SIGTERM or SIGINT."),
        click.option("--every", default="5 seconds", show_default=True, metavar="TIME",
                     help="How often to look, without --once."),
        click.option("--batch", type=click.IntRange(min=1), metavar="N",
                     help="Events in a micro-batch.  [default: drain 100000, follow 50000]"),
    ):  # fmt: skip
        command = option(command)
    return spark_options(command)


@click.command("drain")
@click.option("--stream", default="lake", show_default=True, metavar="NAME", help="The name of the stream in the box.")
@click.option("--on-lost", type=click.Choice(["fail", "continue"]), default="fail", show_default=True,
              help="When others took events that it held.")  # fmt: skip
@click.option("--on-unreadable", type=click.Choice(["fail", "continue"]), default="fail", show_default=True,
              help="When the body of an event is damaged, or of a newer redbox.")  # fmt: skip
@stream_options
@pass_session
def drain_command(session: Session, /, stream: str, on_lost: str, on_unreadable: str, **options: Any) -> None:
    """Take events out of the box into files: claimed, and PUBLISHED when the files are committed.

    Each event comes exactly once into a file sink, while it keeps its checkpoint and stream name, nobody else takes
    what it held, and Redis loses no write that it acknowledged. Read the files through Spark: it knows which of them
    count.

    \b
    Examples:
      redbox pipeline drain --to /lake/drained --once
      redbox pipeline drain --to /lake/drained --every '1 minute'
      redbox pipeline drain --to redbox --option url=redis://other:6379/0 --option box=orders --checkpoint /lake/moved
    """
    _run(session, {"stream": stream, "onLost": on_lost, "onUnreadable": on_unreadable}, **options)


@click.command("follow")
@click.option("--state", type=click.Choice(["published", "dead"]), help="Only these; else both.")
@stream_options
@pass_session
def follow_command(session: Session, /, state: str | None, **options: Any) -> None:
    """Copy published and dead events as they come, without claiming or changing anything.

    So what relays deliver also reaches the lake. What is swept, archived or dropped before it was read is
    missed.

    \b
    Examples:
      redbox pipeline follow --to /lake/delivered --once
      redbox pipeline follow --to /lake/dead --state dead
    """
    _run(session, {"mode": "follow"} | ({"state": state.upper()} if state else {}), **options)


def _run(
    session: Session,
    source: dict[str, str],
    *,
    to: str,
    format_: str,
    options: dict[str, str],
    checkpoint: str | None,
    once: bool,
    every: str,
    batch: int | None,
    spark: Spark,
) -> None:
    with spark.started(session) as running:
        from redbox.pipeline.jobs.streams import run_stream
        from redbox.pipeline.source.options import Address

        if batch is not None:
            source = {**source, "maxEventsPerTrigger": str(batch)}
        at, before = Address(session.url, session.box_name), time.monotonic()

        def progress(done: Streamed) -> None:
            session.output.note(f"{done.rows:,} events in {done.batches:,} micro-batches", rows=done.rows)

        with stop_on_signal() as stop:
            done = run_stream(
                running,
                at,
                source,
                to,
                format=format_,
                options=options,
                checkpoint=checkpoint,
                every=None if once else every,
                progress=progress,
                stop=stop,
            )
        told = f"{done.rows:,} events in {done.batches:,} micro-batches written to {to}"
        summary(session, spark, time.monotonic() - before, told, rows=done.rows, batches=done.batches)
        if once and done.stopped:
            session.output.note("stopped before the end; run it again to go on")
            click.get_current_context().exit(1)


@contextmanager
def stop_on_signal() -> Iterator[Callable[[], bool]]:
    """While the block runs, SIGTERM and SIGINT are only noted; what it yields tells whether one came. (Spark's own
    handler asks Java in the middle of another question.)"""
    told: list[int] = []
    before = {each: signal.signal(each, lambda number, _: told.append(number)) for each in SIGNALS}
    try:
        yield lambda: bool(told)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
