"""`redbox pipeline`: bulk operations as Spark jobs."""

from __future__ import annotations

import functools
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import click

from redbox.arguments import shown, text
from redbox.cli.options.parameters import name_value_pairs
from redbox.cli.session import Session
from redbox.errors import RedboxError, UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Job → its module in redbox.cli.pipeline, in the order of `redbox pipeline --help`.
JOBS: Final = {
    "load": "load",
    "report": "report",
    "audit": "audit",
    "patch": "patch",
    "archive": "archive",
    "replay": "replay",
    "drain": "streams",
    "follow": "streams",
}


RATED: Final = 1000  # rows: for fewer, a rate means nothing


class Jobs(click.Group):
    """Imports the module of a job only when the job is used: importing Spark is slow."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click passes it
        return list(JOBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - same
        if cmd_name not in JOBS:
            return None
        command: click.Command = getattr(import_module(f"redbox.cli.pipeline.{JOBS[cmd_name]}"), f"{cmd_name}_command")
        return command


@click.group("pipeline", cls=Jobs, invoke_without_command=True)
@click.pass_context
def pipeline_command(ctx: click.Context) -> None:
    """Load, report on, archive and replay events with Spark.

    Needs `pip install 'redbox-outbox[pipeline]'` and Java. Jobs run on all cores of this machine, or on a cluster with
    --master.

    \b
    Examples:
      redbox pipeline report --to report
      redbox pipeline archive --to /lake/orders --older-than 7d
      redbox pipeline drain --to /lake/drained --once
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(2)


def spark_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --master and --conf; the command gets `spark`, which starts Spark when it is entered."""

    @click.option(
        "--master",
        metavar="URL",
        help="Spark master: local[4], spark://host:7077.  [default: all cores of this machine]",
    )
    @click.option(
        "--conf", multiple=True, callback=name_value_pairs, metavar="NAME=VALUE",
        help="Spark setting, such as spark.driver.memory=4g; repeatable.",
    )  # fmt: skip
    @functools.wraps(command)
    def with_spark(*args: Any, master: str | None, conf: dict[str, str], **options: Any) -> Any:
        import redbox.pipeline  # noqa: F401 - raises MissingExtra before the command connects to anything

        _check_texts(click.get_current_context())

        return command(*args, spark=Spark(master, conf), **options)

    return with_spark


def _check_texts(ctx: click.Context) -> None:
    """Refuses text that Java cannot take: lone surrogates and NUL characters. Also an empty path or condition, which a
    shell makes of an unset variable: it would mean the root directory, or all events."""
    for param in ctx.command.params:
        given = ctx.params.get(param.name or "")
        if given == "" and param.name not in ("why", "master"):
            raise UsageError(f"{param.opts[0]} is empty; leave it out, or give a value")
        for value in (*given, *given.values()) if isinstance(given, dict) else (given,):
            if isinstance(value, str) and "\0" in text(param.opts[0], value):
                raise UsageError(f"{param.opts[0]} holds a NUL character: {shown(value)}")


class Spark:
    """Starts Spark for one command."""

    def __init__(self, master: str | None, conf: dict[str, str]) -> None:
        self._master, self._conf = master, conf
        self.started_in = 0.0

    @contextmanager
    def started(self, session: Session) -> Iterator[SparkSession]:
        """A session while the command runs. The box stays open meanwhile: an embedded server stays up between tasks. An
        error of Spark is reported in one sentence."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        from redbox import pipeline
        from redbox.pipeline.failures import SPARK_IS_GONE, translate

        with _held(session):
            before = time.monotonic()
            session.output.note("starting Spark ...")
            with quiet(session):
                spark = pipeline.session(self._master, self._conf)
            # Else its thread prints a traceback when Spark's Java process dies.
            updates: Any = spark.sparkContext._accumulatorServer  # noqa: SLF001 - PySpark has no other way to it
            updates.handle_error = lambda *_: None
            self.started_in = time.monotonic() - before
            try:
                yield spark
            except (PySparkException, Py4JError, *SPARK_IS_GONE) as error:
                raise translate(error) from error
            finally:
                with suppress(Py4JError, *SPARK_IS_GONE):  # its Java process may have died
                    spark.stop()

    @contextmanager
    def progress(self, session: Session, label: str) -> Iterator[None]:
        """Shows the number of completed tasks while the block runs; on a terminal only."""
        from py4j.protocol import Py4JError
        from pyspark import SparkContext

        from redbox.pipeline.failures import SPARK_IS_GONE

        context, over = SparkContext.getOrCreate(), threading.Event()
        tracker = context.statusTracker()
        done: dict[int, tuple[int, int]] = {}

        def watch(show: Callable[..., None]) -> None:
            with suppress(Py4JError, *SPARK_IS_GONE):  # the job itself reports it
                look(show)

        def look(show: Callable[..., None]) -> None:
            while not over.wait(0.25):
                for stage in tracker.getActiveStageIds():
                    about = tracker.getStageInfo(stage)
                    if about is not None:
                        done[stage] = (about.numCompletedTasks, about.numTasks)
                if done:
                    show(sum(made for made, _ in done.values()), sum(all_ for _, all_ in done.values()))

        with session.output.progress(label) as show:
            watcher = threading.Thread(target=watch, args=(show,), daemon=True)
            watcher.start()
            try:
                yield
            finally:
                over.set()
                watcher.join()


@contextmanager
def quiet(session: Session) -> Iterator[None]:
    """Hides what Java writes to stderr while the block runs, except with --debug; an error quotes its last line."""
    if session.debug:
        yield
        return
    with tempfile.TemporaryFile() as said:
        sys.stderr.flush()
        kept = os.dup(2)
        os.dup2(said.fileno(), 2)  # the JVM inherits it
        try:
            yield
        except RedboxError as error:
            said.seek(0)
            reason = _reason(said.read().decode(errors="replace"))
            if not reason:
                raise
            raise RedboxError(f"{error.message} ({reason}); --debug shows Java's output") from error
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _reason(said: str) -> str:
    """The last line that Java wrote, without the frames of a stack trace."""
    lines = [line for line in said.splitlines() if line.strip() and not line.startswith("\tat ")]
    return lines[-1].strip() if lines else ""


@contextmanager
def _held(session: Session) -> Iterator[None]:
    """Keeps an embedded server up; other servers need no holding."""
    if not session.url.startswith("embedded:"):
        yield
        return
    from redbox.pipeline.source.connection import opened
    from redbox.pipeline.source.options import Address

    with opened(Address(session.url, session.box_name)) as (box, run):
        run(box.exists())
        yield


def summary(session: Session, spark: Spark, seconds: float, text: str, **figures: Any) -> None:
    """Prints the result of a job: what was done, how fast, and how long starting Spark took."""
    rows = figures.get("rows")
    rate = rows / seconds if rows and rows >= RATED and seconds > 0 else None
    data = {**figures, "seconds": round(seconds, 3), "start_up_seconds": round(spark.started_in, 3)}
    if rate is not None:
        data["rows_per_second"] = round(rate)
    pace = f" in {seconds:.1f} s" + (f", {rate:,.0f} per second" if rate is not None else "")
    session.output.document(data, f"{text}{pace} (starting Spark took {spark.started_in:.1f} s)")
