"""`redbox kill`, `release`, `reschedule` and `drop`: events by their ids."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from redbox.arguments import counted
from redbox.cli.options.changes import change_options, confirm, operator, require_answer
from redbox.cli.options.filters import resolved
from redbox.cli.options.parameters import DURATION, MOMENT
from redbox.cli.session import Session, pass_session

if TYPE_CHECKING:
    from datetime import datetime

    from redbox import Outcome

STDIN: Final = "-"
MOST_LISTED: Final = 100  # rows of the table of a dry run
_DONE: Final = {"kill": "killed", "release": "released", "reschedule": "rescheduled", "drop": "dropped"}

ids_argument = click.argument("ids", metavar="ID...", nargs=-1, required=True)


@click.command("kill")
@ids_argument
@change_options
@pass_session
def kill_command(session: Session, /, ids: tuple[str, ...], **change: Any) -> None:
    """Mark events DEAD, so that they are not delivered.

    For PENDING and CLAIMED events. A relay that is publishing one can no longer settle it; its publish may still
    succeed. A dead event stays in the box: `redbox dead replay` returns it to PENDING.

    `-` reads ids from stdin: one per line, or JSON lines with event_id. The exit code is 1 if an event was refused.

    \b
    Examples:
      redbox kill 01938a4e-5b1f-7c3d-9e2a-6f0d1c2b3a49 --why 'wrong amount'
      redbox --json list --state pending --type 'test.*' | redbox kill - --dry-run
      redbox --json list --state pending --type 'test.*' | redbox kill - --why 'test data' --yes
    """
    _act(session, "kill", ids, change)


@click.command("release")
@ids_argument
@click.option("--delay", type=DURATION, help="Delay before the events are due, such as 10m.")
@change_options
@pass_session
def release_command(session: Session, /, ids: tuple[str, ...], delay: timedelta | None, **change: Any) -> None:
    """Return claimed events to PENDING, away from their relays.

    For CLAIMED events, such as those of a relay that hangs. The attempt does not count against the limit, and the relay
    can no longer settle the event. If the relay is still publishing it, the event may be delivered twice.

    `-` reads ids from stdin: one per line, or JSON lines with event_id. The exit code is 1 if an event was refused.

    \b
    Examples:
      redbox release 01938a4e-5b1f-7c3d-9e2a-6f0d1c2b3a49
      redbox --json list --state claimed | jq -c 'select(.claimed_by == "web-1")' | redbox release - --yes
    """
    _act(session, "release", ids, change, delay=delay)


@click.command("reschedule")
@ids_argument
@click.option("--delay", type=DURATION, help="Delay before the events are due, such as 10m.")
@click.option("--at", type=MOMENT, help="Time when the events are due: ISO 8601 with a zone, or relative: +1h.")
@change_options
@pass_session
def reschedule_command(
    session: Session, /, ids: tuple[str, ...], delay: timedelta | None, at: datetime | timedelta | None, **change: Any
) -> None:
    """Change when pending events are due; by default now.

    For PENDING events. An event keeps its place in the line of its ordering key.

    `-` reads ids from stdin: one per line, or JSON lines with event_id. The exit code is 1 if an event was refused.
    Relative times: `1h` is an hour ago, `+1h` an hour from now.

    \b
    Examples:
      redbox reschedule 01938a4e-5b1f-7c3d-9e2a-6f0d1c2b3a49
      redbox reschedule 01938a4e-5b1f-7c3d-9e2a-6f0d1c2b3a49 --at 2026-01-31T06:00:00Z
      redbox --json list --state pending --error 503 | redbox reschedule - --delay 10m --yes
    """
    if delay is not None and at is not None:
        raise click.UsageError("give either --delay or --at, not both", click.get_current_context())
    _act(session, "reschedule", ids, change, delay=delay, at=at)


@click.command("drop")
@ids_argument
@change_options
@pass_session
def drop_command(session: Session, /, ids: tuple[str, ...], **change: Any) -> None:
    """Remove published or dead events for good.

    For PUBLISHED and DEAD events; `redbox kill` ends live ones first. A dropped event cannot be restored. If it blocked
    the line of its ordering key, the line continues.

    `-` reads ids from stdin: one per line, or JSON lines with event_id. The exit code is 1 if an event was refused.

    \b
    Examples:
      redbox drop 01938a4e-5b1f-7c3d-9e2a-6f0d1c2b3a49 --why 'personal data'
      redbox --json dead list --type 'test.*' | redbox drop - --yes
    """
    _act(session, "drop", ids, change)


def _act(
    session: Session,
    action: str,
    ids: tuple[str, ...],
    change: dict[str, Any],
    *,
    delay: timedelta | None = None,
    at: datetime | timedelta | None = None,
) -> None:
    yes, dry_run, why, who = (change[name] for name in ("yes", "dry_run", "why", "who"))
    require_answer(yes=yes, dry_run=dry_run)
    chosen = list(dict.fromkeys(_ids(ids)))

    async def act() -> list[Outcome]:
        async with session.existing() as box:
            by = {"who": operator(who), "why": why}
            method = getattr(box.operate, action)
            given: dict[str, Any] = await resolved(box, {"available_at": at})
            given |= {} if delay is None else {"delay": delay}
            if dry_run or not yes:
                outcomes: list[Outcome] = await method(chosen, **by, **given, dry_run=True)
                if dry_run:
                    return outcomes
                _ask(session, action, outcomes)
            acted: list[Outcome] = await method(chosen, **by, **given)
            return acted

    outcomes = session.run(act())
    _report(session, action, chosen, outcomes, dry_run)
    if any(outcome != "OK" for outcome in outcomes):
        click.get_current_context().exit(1)


def _ask(session: Session, action: str, outcomes: list[Outcome]) -> None:
    """Asks before the change, unless there is nothing to do."""
    possible = sum(outcome == "OK" for outcome in outcomes)
    refused = len(outcomes) - possible
    also = f" ({refused:,} more would be refused)" if refused else ""
    if possible:
        confirm(f"{action.capitalize()} {counted(possible, 'event')} of box {session.box_name!r}{also}?", yes=False)


def _report(session: Session, action: str, ids: list[str], outcomes: list[Outcome], dry_run: bool) -> None:
    output, word = session.output, _DONE[action]
    done = sum(outcome == "OK" for outcome in outcomes)
    refused = len(outcomes) - done
    if output.as_json:
        events = [
            {"event_id": event_id, "outcome": outcome, "reason": None if outcome == "OK" else outcome.reason}
            for event_id, outcome in zip(ids, outcomes, strict=True)
        ]
        output.json({"action": action, "dry_run": dry_run, "done": done, "refused": refused, "events": events})
        return
    would = "would be " if dry_run else ""
    output.text(f"{counted(done, 'event')} {would}{word}" + (f", {refused:,} refused" if refused else ""))
    if dry_run:
        rows = [
            (event_id, f"would be {word}" if outcome == "OK" else f"refused: {outcome.reason}")
            for event_id, outcome in zip(ids, outcomes, strict=True)
        ]
        output.table(("ID", "OUTCOME"), rows[:MOST_LISTED], wrap="OUTCOME")
        if len(rows) > MOST_LISTED:
            output.note(f"and {counted(len(rows) - MOST_LISTED, 'more event')}; --json lists all")
    elif refused:
        pairs = zip(ids, outcomes, strict=True)
        rows = [(event_id, each.reason) for event_id, each in pairs if each != "OK"]
        output.table(("REFUSED", "REASON"), rows, wrap="REASON")


# --- ids -------------------------------------------------------------------------------------------------------


def _ids(given: Iterable[str]) -> Iterator[str]:
    ctx = click.get_current_context()
    for each in given:
        if each == STDIN:
            yield from _from_lines(sys.stdin.buffer, ctx)
        elif each:
            yield each
        else:
            raise click.UsageError("ID must not be empty", ctx)


def _from_lines(lines: Iterable[bytes], ctx: click.Context) -> Iterator[str]:
    """Ids, one per line, or the event_id of each JSON line; empty lines are skipped."""
    for number, raw in enumerate(lines, 1):
        try:
            line = raw.decode().strip()
        except UnicodeDecodeError:
            raise click.UsageError(f"line {number} of stdin is not UTF-8", ctx) from None
        if not line.startswith("{"):
            if line:
                yield line
            continue
        try:
            event_id = json.loads(line).get("event_id")
        except (ValueError, RecursionError):
            raise click.UsageError(f"line {number} of stdin is neither an id nor valid JSON", ctx) from None
        if not isinstance(event_id, str) or not event_id:
            raise click.UsageError(f"line {number} of stdin has no event_id", ctx)
        yield event_id
