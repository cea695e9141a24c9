"""`redbox pipeline audit`: checks that a box is consistent."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from redbox.arguments import counted
from redbox.cli.pipeline.group import Spark, spark_options, summary
from redbox.cli.session import Session, pass_session

if TYPE_CHECKING:
    from redbox.pipeline.jobs.audit import Audit


@click.command("audit")
@click.option("--to", metavar="PATH", help="New directory for all problems.  [default: print the first 1,000]")
@click.option(
    "--format", "format_", type=click.Choice(["parquet", "json"]), default="parquet", show_default=True,
    help="Format of the files in --to.",
)  # fmt: skip
@spark_options
@pass_session
def audit_command(session: Session, /, to: str | None, format_: str, spark: Spark) -> None:
    """Check that the whole box is consistent, and list problems.

    Compares every event with its indexes, its line, its unique key, its body and its history, and every reference with
    the event it names. Changes nothing, and may run while relays do. Exits with 1 if there is a problem.

    \b
    Examples:
      redbox pipeline audit
      redbox pipeline audit --to problems --format json
      redbox --json pipeline audit | jq -r 'select(.rule == "orphan") | .event_id'
    """
    with spark.started(session) as running:
        from redbox.pipeline.jobs.audit import audit
        from redbox.pipeline.source.options import Address

        before = time.monotonic()
        with spark.progress(session, "auditing"):
            done = audit(running, Address(session.url, session.box_name), to=to, format=format_)
        seconds = time.monotonic() - before
        _show(session, done, to)
        counts = f" ({', '.join(f'{rule} {count:,}' for rule, count in done.by_rule.items())})" if done.problems else ""
        problems = counted(done.problems, "problem") if done.problems else "no problem"
        keys = f" and {done.keys:,} lines and unique keys" if done.keys else ""
        summary(
            session, spark, seconds, f"{problems}{counts}; {counted(done.events, 'event')}{keys} audited",
            rows=done.events, keys=done.keys, problems=done.problems, by_rule=done.by_rule,
        )  # fmt: skip
    if done.problems:
        click.get_current_context().exit(1)


def _show(session: Session, done: Audit, to: str | None) -> None:
    if session.output.as_json:
        for problem in done.sample:
            session.output.json(problem)
    elif done.sample:
        rows = [(each.event_id or "", each.rule, each.key or "", each.sentence) for each in done.sample]
        session.output.table(("ID", "RULE", "KEY", "PROBLEM"), rows)
    left = done.problems - len(done.sample)
    if left:
        session.output.note(f"and {left:,} more" + (f", all in {to}" if to else "; --to PATH writes them all"))
