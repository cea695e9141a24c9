"""`redbox doctor`: what is wrong with a box and its server, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from redbox.cli.failures import FAILED
from redbox.cli.output import printable
from redbox.cli.session import Session, pass_session

if TYPE_CHECKING:
    from redbox.audit import Finding

STYLES: Final = {"error": "bold red", "warning": "yellow", "info": "cyan", "ok": "green"}


@click.command("doctor")
@click.option("--full", is_flag=True, help="Audit the whole box, not only the first and last events of each index.")
@pass_session
def doctor_command(session: Session, /, full: bool) -> None:
    """Find what is wrong with the box and its server.

    Checks the server (version, eviction, persistence, replicas, memory, permissions, clock), the settings, the relays,
    over-age claims, blocked keys, lost events, and a sample of the events. Changes nothing. Exits with 1 if there is an
    error. What the server or the permissions of the user do not allow to check is reported.

    With --json each line is one finding: severity, check, sentence, meaning, remedy.

    \b
    Examples:
      redbox doctor
      redbox --box orders doctor --full
      redbox --json doctor | jq -r 'select(.severity == "error") | .remedy'
    """
    findings = session.run(_diagnose(session, full))
    for finding in findings:
        _show(session, finding)
    if any(finding.severity == "error" for finding in findings):
        click.get_current_context().exit(FAILED)


async def _diagnose(session: Session, full: bool) -> list[Finding]:
    from redbox.audit import diagnose

    async with session.existing() as box:
        with session.output.progress("auditing") as progress:
            return await diagnose(box, full=full, progress=progress)


def _show(session: Session, finding: Finding) -> None:
    output = session.output
    if output.as_json:
        output.json(finding)
        return
    output.text(f"{finding.severity.upper():8}{printable(finding.sentence)}", STYLES[finding.severity])
    for words in (finding.meaning, f"→ {finding.remedy}" if finding.remedy else ""):
        if words:
            output.text(f"{'':8}{printable(words)}")
