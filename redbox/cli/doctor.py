"""`redbox doctor`: what is wrong with a box and its server, what to do about it, and the repair of the box."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from redbox.arguments import counted
from redbox.cli.options.changes import change_options, confirm, require_answer
from redbox.cli.printing.failures import FAILED
from redbox.cli.printing.output import printable
from redbox.cli.session import Session, pass_session
from redbox.cli.why import as_typed

if TYPE_CHECKING:
    from redbox.audit import Finding, Repaired

STYLES: Final = {"error": "bold red", "warning": "yellow", "info": "cyan", "ok": "green"}
SHOWN: Final = 20  # problems that were mended, and that are left


@click.command("doctor")
@click.option("--full", is_flag=True, help="Audit the whole box, however large it is, instead of a sample.")
@click.option("--repair", "repairs", is_flag=True, help="Mend what breaks a rule, instead of the checks.")
@change_options
@pass_session
def doctor_command(
    session: Session, /, full: bool, repairs: bool, dry_run: bool, yes: bool, why: str, who: str | None
) -> None:
    """Find what is wrong with the box and its server.

    Checks the server (version, eviction, persistence, replicas, memory, permissions, clock), the settings, the relays,
    expired claims, blocked keys, lost events, and the events: all of a small box (up to 20,000 events), a sample of a
    large one. A sample does not show events that are in no index; --full does. Changes nothing. Exits with 1 if there
    is an error. The command names the checks that the server or the permissions do not allow.

    --repair audits the whole box and mends what breaks a rule. It asks first; without a terminal it requires --yes or
    --dry-run. It may run while relays do, and loses no event: in doubt an event becomes PENDING and may be delivered
    twice, and an event without a body becomes DEAD. The operations log records it. Exits with 1 if problems are left.

    With --json each line is one finding: severity, check, sentence, meaning, remedy. With --repair it is one document.

    \b
    Examples:
      redbox doctor
      redbox --box orders doctor --full
      redbox --json doctor | jq -r 'select(.severity == "error") | .remedy'
      redbox doctor --repair --dry-run
      redbox doctor --repair --why 'keys were evicted' --yes
    """
    ctx = click.get_current_context()
    if not repairs:
        if dry_run or yes or why or who:
            raise click.UsageError("--dry-run, --yes, --why and --who are options of --repair", ctx)
        findings = session.run(_diagnose(session, full))
        for finding in findings:
            _show(session, _on_this_box(finding))
        ctx.exit(FAILED if any(finding.severity == "error" for finding in findings) else 0)
    require_answer(yes=yes, dry_run=dry_run)
    done = session.run(_repair(session, dry_run=dry_run, yes=yes, why=why, who=who))
    _show_repair(session, done)
    ctx.exit(FAILED if done.left else 0)


async def _diagnose(session: Session, full: bool) -> list[Finding]:
    from redbox.audit import diagnose

    async with session.existing() as box:
        with session.output.progress("auditing") as progress:
            return await diagnose(box, full=full, progress=progress)


async def _repair(session: Session, *, dry_run: bool, yes: bool, why: str, who: str | None) -> Repaired:
    """Mends the box; if it has to ask, it first finds out how much there is to mend."""
    from redbox.audit import repair

    async with session.existing() as box:
        if dry_run or not yes:
            with session.output.progress("auditing") as progress:
                planned = await repair(box, dry_run=True, progress=progress)
            if dry_run or not planned.mended:
                return planned
            question = f"Mend {counted(len(planned.mended), 'problem')} of box {box.name!r}?"
            confirm(question, yes=False)
        with session.output.progress("repairing") as progress:
            return await repair(box, why=why, who=who, progress=progress)


def _on_this_box(finding: Finding) -> Finding:
    """The finding with the store and the box in its commands, as they were given on this command line."""
    import msgspec

    return msgspec.structs.replace(finding, remedy=finding.remedy.replace("`redbox ", f"`{as_typed()} "))


def _show(session: Session, finding: Finding) -> None:
    output = session.output
    if output.as_json:
        output.json(finding)
        return
    indent = " " * 8
    output.paragraph(f"{finding.severity.upper():8}{printable(finding.sentence)}", STYLES[finding.severity], indent)
    for words in (finding.meaning, f"→ {_without_marks(finding.remedy)}" if finding.remedy else ""):
        if words:
            output.paragraph(f"{indent}{printable(words)}", indent=indent)


def _without_marks(remedy: str) -> str:
    """A remedy that is one command is printed as it is typed."""
    alone = remedy.count("`") == 2 and remedy.startswith("`") and remedy.endswith("`")
    return remedy.strip("`") if alone else remedy


def _show_repair(session: Session, done: Repaired) -> None:
    output = session.output
    if output.as_json:
        output.json(
            {
                "dry_run": done.dry_run,
                "events": done.events,
                "by_rule": dict(done.by_rule),
                "mended": done.mended,
                "left": done.left,
            }
        )
        return
    rows = _by_event(done)
    if rows:
        action = "WOULD BE DONE" if done.dry_run else "DONE"
        output.table(("ID", "KEY", "RULE", action), rows[:SHOWN], wrap=action)
    if len(rows) > SHOWN:
        output.text(f"and {len(rows) - SHOWN:,} more; --json shows all")
    if done.left:
        left = [(each.event_id or "", each.key or "", each.rule, each.sentence) for each in done.left]
        output.text("")
        output.table(("LEFT", "KEY", "RULE", "PROBLEM"), left[:SHOWN], wrap="PROBLEM")
    verb = "would be mended" if done.dry_run else "mended"
    mended = f"{counted(len(done.mended), 'problem')} {verb}" if rows else "nothing to mend"
    output.note(f"{mended}, {len(done.left):,} left; {counted(done.events, 'event')} audited")


def _by_event(done: Repaired) -> list[tuple[str, str, str, str]]:
    """One row for each event or key: the rules that it broke, and each action once."""
    rules: dict[tuple[str, str], dict[str, None]] = {}
    actions: dict[tuple[str, str], dict[str, None]] = {}
    for each in done.mended:
        name = (each.event_id or "", "" if each.event_id else each.key or "")
        rules.setdefault(name, {})[each.rule] = None
        actions.setdefault(name, {}).update(dict.fromkeys(each.actions))
    return [(*name, ", ".join(found), "; ".join(actions[name])) for name, found in rules.items()]
