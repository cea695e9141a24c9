"""`redbox pipeline drain` and `follow`: streams of a box into files or another sink."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from redbox.arguments import counted
from redbox.cli.options.parameters import name_value_pairs
from redbox.cli.pipeline.group import Spark, spark_options, summary
from redbox.cli.process import SIGNALS
from redbox.cli.session import Session, pass_session

if TYPE_CHECKING:
    from redbox.pipeline.jobs.streams import Streamed


def stream_options(batch: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds the options of both streams; `batch` is the default of --batch, in words."""
    options = (
        click.option("--to", required=True, metavar="PATH|SINK",
                     help="Path that Spark can write, or a sink: redbox, console or noop."),
        click.option("--format", "format_", default="parquet", show_default=True, metavar="NAME",
                     help="Format of the files: parquet, json, orc, or any other sink with a path."),
        click.option("--option", "options", multiple=True, callback=name_value_pairs, metavar="NAME=VALUE",
                     help="Option of the sink, such as compression=zstd; repeatable."),
        click.option("--checkpoint", metavar="PATH",
                     help="Directory of Spark's checkpoint; required for a SINK.  [default: PATH/_checkpoint]"),
        click.option("--once", is_flag=True,
                     help="Stop when no event is left.  [default: run until SIGTERM or SIGINT]"),
        click.option("--every", default="5 seconds", show_default=True, metavar="TIME",
                     help="Interval between micro-batches, without --once."),
        click.option("--batch", type=click.IntRange(min=1), metavar="N",
                     help=f"Maximum events in a micro-batch.  [default: {batch}]"),
    )  # fmt: skip

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return add


@click.command("drain")
@stream_options(batch="100,000")
@click.option("--stream", default="lake", show_default=True, metavar="NAME", help="Name of the stream in the box.")
@click.option("--on-lost", type=click.Choice(["fail", "continue"]), default="fail", show_default=True,
              help="Reaction to events that others took from this stream.")  # fmt: skip
@click.option("--on-unreadable", type=click.Choice(["fail", "continue"]), default="fail", show_default=True,
              help="Reaction to a body that is damaged, or was written by a newer redbox.")  # fmt: skip
@spark_options
@pass_session
def drain_command(session: Session, /, stream: str, on_lost: str, on_unreadable: str, **options: Any) -> None:
    """Claim events, write them to files, and mark them PUBLISHED.

    Events are marked when Spark has committed their files. Each event is written exactly once, as long as the command
    keeps its checkpoint and stream name, nothing else claims the events that it holds, and Redis loses no acknowledged
    write. Read the files through Spark, which knows the committed ones.

    \b
    Examples:
      redbox pipeline drain --to /lake/drained --once
      redbox pipeline drain --to /lake/drained --every '1 minute'
      redbox pipeline drain --to redbox --option url=redis://other:6379/0 --option box=orders --checkpoint /lake/moved
    """
    _run(session, {"stream": stream, "onLost": on_lost, "onUnreadable": on_unreadable}, **options)


@click.command("follow")
@stream_options(batch="50,000 of each state")
@click.option("--state", type=click.Choice(["published", "dead"]), help="State to follow.  [default: both]")
@spark_options
@pass_session
def follow_command(session: Session, /, state: str | None, **options: Any) -> None:
    """Copy published and dead events to files as they come.

    Claims and changes nothing, so relays deliver the same events. An event that is swept, archived or dropped before it
    was read is missed.

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
            session.output.note(_counts(done), rows=done.rows)

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
        text = f"{_counts(done)} written to {to}"
        summary(session, spark, time.monotonic() - before, text, rows=done.rows, batches=done.batches)
        if once and done.stopped:
            session.output.note("stopped before the end; run it again to continue")
            click.get_current_context().exit(1)


def _counts(done: Streamed) -> str:
    batches = "1 micro-batch" if done.batches == 1 else f"{done.batches:,} micro-batches"
    return f"{counted(done.rows, 'event')} in {batches}"


@contextmanager
def stop_on_signal() -> Iterator[Callable[[], bool]]:
    """Catches SIGTERM and SIGINT while the block runs; yields a function that returns whether one came. (Spark's own
    handler calls Java in the middle of another call.)"""
    received: list[int] = []
    before = {each: signal.signal(each, lambda number, _: received.append(number)) for each in SIGNALS}
    try:
        yield lambda: bool(received)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
