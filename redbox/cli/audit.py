"""`redbox audit`: checks that a box is consistent."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING, Final

import click

from redbox.arguments import counted
from redbox.cli.printing.failures import FAILED
from redbox.cli.session import Session, pass_session

if TYPE_CHECKING:
    from redbox.audit import BoxAudit, Problem

LIMIT: Final = 10
_NO_LIMIT: Final = 1_000_000_000


@click.command("audit")
@click.option(
    "--limit", type=click.IntRange(min=0), metavar="N",
    help=f"Maximum number of problems to print for each rule.  [default: {LIMIT}; all with --json]",
)  # fmt: skip
@click.option("--no-bodies", is_flag=True, help="Do not read the bodies of events.")
@pass_session
def audit_command(session: Session, /, limit: int | None, no_bodies: bool) -> None:
    """Check that the whole box is consistent.

    Compares every event with its indexes, its line, its unique key, its body and its history, and every reference with
    the event it names. Changes nothing, and may run while relays do: the server is asked in steps of a few
    milliseconds. Exits with 1 if there is a problem; `redbox doctor --repair` mends the box.

    With --json each line is one problem: rule, event_id, key, sentence. The summary is on stderr.

    --no-bodies reads less from the server, and leaves out the rules `damaged` and `newer`.

    \b
    Examples:
      redbox audit
      redbox --box orders audit --limit 100
      redbox --json audit | jq -r 'select(.rule == "orphan") | .event_id'
    """
    before = time.monotonic()
    audit = session.run(_audit(session, limit, bodies=not no_bodies))
    seconds = time.monotonic() - before
    rate = f"{audit.events / seconds:,.0f} events/s" if seconds else ""
    problems = counted(audit.problems, "problem") if audit.problems else "no problem"
    lines = f" and {audit.keys:,} lines and unique keys" if audit.keys else ""
    session.output.note(
        f"{problems}; {counted(audit.events, 'event')}{lines} checked in {seconds:.1f} s, {rate}",
        problems=audit.problems, by_rule=dict(audit.by_rule), events=audit.events, keys=audit.keys,
        seconds=round(seconds, 3),
    )  # fmt: skip
    if audit.problems:
        click.get_current_context().exit(FAILED)


async def _audit(session: Session, limit: int | None, *, bodies: bool) -> BoxAudit:
    from redbox.audit import audit_box

    output = session.output
    most = (_NO_LIMIT if output.as_json else LIMIT) if limit is None else limit
    shown: dict[str, list[Problem]] = defaultdict(list)
    async with session.existing() as box:
        with output.progress("auditing") as progress:
            audit = audit_box(box, bodies=bodies, progress=progress)
            async for problem in audit:
                if audit.by_rule[problem.rule] > most:
                    continue
                if output.as_json:
                    output.json(problem)
                else:
                    shown[problem.rule].append(problem)
    if not output.as_json:
        _show(session, audit, shown)
    return audit


def _show(session: Session, audit: BoxAudit, shown: dict[str, list[Problem]]) -> None:
    """Prints the problems of each rule below the rule's sentence."""
    from redbox.audit import RULES

    output = session.output
    for rule, count in audit.by_rule.most_common():
        output.paragraph(f"{rule}: {counted(count, 'problem')}. The rule: {RULES[rule]}", "bold red")
        rows = [(each.event_id or "", each.key or "", each.sentence) for each in shown[rule]]
        if rows:
            output.table(("ID", "KEY", "PROBLEM"), rows, wrap="PROBLEM")
        if count > len(rows):
            output.text(f"and {count - len(rows):,} more; --limit shows more of them")
        output.text("")
