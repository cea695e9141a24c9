"""`redbox dead replay`: returns dead events to PENDING."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from redbox.arguments import counted
from redbox.cli.dead.selecting import LONG, SHOWN, Choice, Refusal, note_nothing, selection_of, take_choice
from redbox.cli.options.changes import change_options, confirm, require_answer
from redbox.cli.options.filters import filter_options
from redbox.cli.options.parameters import DURATION
from redbox.cli.printing.output import printable
from redbox.cli.session import Session, pass_session
from redbox.cli.why import as_typed

if TYPE_CHECKING:
    from datetime import timedelta

    from redbox import Box, Canary, Outcome
    from redbox.box.reports import Replayed

LONG_SECONDS = 10  # of a replay with a rate


@click.command("replay")
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Replay all dead events.")
@filter_options
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="N", help="Maximum events per second.")
@click.option("--ramp", type=DURATION, help="Time in which the rate grows from a trickle to --rate, such as 5m.")
@click.option("--delay", type=DURATION, help="Delay before the events are due, such as 10m.")
@click.option(
    "--canary", type=click.IntRange(1, 1000), metavar="N",
    help="Replay N events first, and the others only if all N are published.",
)  # fmt: skip
@click.option(
    "--canary-wait", type=DURATION, default="1m", show_default=True,
    help="How long to wait until the canary events are settled.",
)  # fmt: skip
@click.option(
    "--keep-attempts", is_flag=True, help="Keep the last error, and count earlier attempts against the limit."
)
@click.option("--force", is_flag=True, help="Also replay events whose unique key is held, or that were superseded.")
@change_options
@pass_session
def replay_dead(
    session: Session,
    /,
    ids: tuple[str, ...],
    everything: bool,
    dry_run: bool,
    yes: bool,
    **options: Any,
) -> None:
    """Return dead events to PENDING, to be delivered again.

    Select them by ID, by filters, or with --all. Only events that are dead at the start are replayed, so the command
    ends even while relays are running. The operations log records who replayed them, in one entry. The exit code is 1
    if an event was refused, if a canary event was not published, or if no dead event is in the --group.

    Events whose unique key another live event holds are listed before the confirmation. They are refused; with
    --force they are replayed, and then two live events have the same key.

    An interrupted replay can be repeated: events that were replayed are no longer dead. To leave out those that died
    again, repeat it with --until and the time at which the first replay began.

    --since and --until compare died_at. Relative times: `1h` is an hour ago, `+1h` an hour from now.

    \b
    Examples:
      redbox dead replay 01938a4e-5b1f-7c3d-9e2a-6f0d1c2b3a49
      redbox dead replay --type 'invoice.*' --since 1d --dry-run
      redbox dead replay --group 55242f13 --canary 10
      redbox dead replay --all --rate 50 --ramp 5m --why 'provider is back' --yes
    """
    choice = take_choice(ids, everything, options)
    if options["ramp"] is not None and options["rate"] is None:
        raise click.UsageError("--ramp needs --rate", click.get_current_context())
    require_answer(yes=yes, dry_run=dry_run)
    replay = _Replay(session, choice, **options)
    report, refused = session.run(replay.run(dry_run, yes))
    _print_report(session, report, refused, replay.left)
    if replay.held_key is not None and not session.output.as_json:
        session.output.note(
            f"{_why_held(replay.held_key)} shows which event holds the key; with --force both events are live"
        )
    if not report.matched:
        note_nothing(session, choice.filters)
    if report.canary is not None and not session.output.as_json:
        _print_canary(session, report.canary, replay.left)
    if report.refused_count or not (report.canary is None or report.canary.passed):
        click.get_current_context().exit(1)


class _Replay:
    """One replay: counts the selected events, then replays them."""

    def __init__(
        self,
        session: Session,
        choice: Choice,
        *,
        keep_attempts: bool,
        canary_wait: timedelta,
        **options: Any,
    ) -> None:
        self.held_key: str | None = None  # the unique key of the first event that is refused for it
        self.left = 0  # selected events that the replay did not come to
        self._session = session
        self._choice = choice
        self._options: dict[str, Any] = {"reset": not keep_attempts, "canary_wait": canary_wait, **options}

    async def run(self, dry_run: bool, yes: bool) -> tuple[Replayed, list[Refusal]]:
        from redbox.box.desk.error_groups import require_group

        async with self._session.existing() as box:
            selection, others = await selection_of(box, self._choice)
            report = await self._preview(box, selection)
            if not report.matched:
                await require_group(box, self._choice.filters["group"])
            report.dry_run = dry_run
            matched, possible = report.matched, report.matched - report.refused_count
            refused = _add_refusals(report, others)
            self.held_key = await _held_key(box, refused)
            if possible and self._options["canary"]:
                await self._warn(box)
            if dry_run or not possible:
                return report, refused
            if not yes:
                _ask(self._session, possible, report, refused)
            rate = self._options["rate"]
            if "until" in selection and (matched > LONG or (rate is not None and matched > LONG_SECONDS * rate)):
                self._note_start(selection["until"].isoformat())
            if self._options["canary"]:
                self._note_canary(possible)
            report = await self._replay(box, matched, selection)
            self.left = max(0, matched - report.matched)
            refused = _add_refusals(report, others)
            self.held_key = await _held_key(box, refused)
            return report, refused

    async def _warn(self, box: Box) -> None:
        """Says why the canary would not be settled."""
        from redbox.box.desk.delivery import delivery_obstacle

        if obstacle := delivery_obstacle(await box.stats()):
            self._session.output.note(f"warning: {printable(obstacle)}, so the canary would not be published")

    def _note_canary(self, possible: int) -> None:
        """Before the progress bar: on a terminal, a note would end on its line."""
        from redbox.durations import format_duration

        count, limit = min(possible, self._options["canary"]), format_duration(self._options["canary_wait"])
        verb = "is" if count == 1 else "are"
        self._session.output.note(f"waiting until {counted(count, 'canary event')} {verb} settled ({limit} at most)")

    def _note_start(self, moment: str) -> None:
        instead = " instead of --all" if self._choice.everything else ""
        self._session.output.note(
            f"if this is interrupted, continue with --until {moment}{instead}, which leaves out events that died again",
            until=moment,
        )

    async def _preview(self, box: Box, selection: dict[str, Any]) -> Replayed:
        from redbox import Replayed

        if selection.get("ids") == []:
            return Replayed()
        with self._session.output.progress("counting") as progress:
            return await box.replay(**selection, force=self._options["force"], dry_run=True, progress=progress)

    async def _replay(self, box: Box, count: int, selection: dict[str, Any]) -> Replayed:
        with self._session.output.progress("replaying", count) as progress:
            return await box.replay(**selection, **self._options, progress=progress)


async def _held_key(box: Box, refused: list[Refusal]) -> str | None:
    """The unique key of the first event that was refused because another one holds it."""
    for each in refused:
        if each.outcome == "CONFLICT":
            record = await box.get(each.event_id)
            return None if record is None else record.event.unique_key
    return None


def _why_held(key: str) -> str:
    return f"`{as_typed('why', '--unique', key)}`"


def _refusals(report: Replayed) -> list[Refusal]:
    return [Refusal(event_id, outcome, _reason(outcome, detail)) for event_id, outcome, detail in report.refused]


def _reason(outcome: Outcome, detail: str) -> str:
    from redbox import Outcome

    if outcome in (Outcome.CONFLICT, Outcome.SUPERSEDED):
        return f"{outcome.reason}: {detail}; --force replays it anyway"
    return outcome.reason


def _add_refusals(report: Replayed, others: list[Refusal]) -> list[Refusal]:
    """Counts ids that were refused before the replay, too. Returns all refusals."""
    report.matched += len(others)
    report.refused_count += len(others)
    return others + _refusals(report)


def _ask(session: Session, count: int, report: Replayed, refused: list[Refusal]) -> None:
    """Lists events that will be refused, and asks."""
    if refused:
        _list_refused(session, report, refused)
    confirm(f"Replay {counted(count, 'event')} of box {session.box_name!r}?", yes=False)


def _list_refused(session: Session, report: Replayed, refused: list[Refusal]) -> None:
    output = session.output
    output.note(f"{counted(report.refused_count, 'event')} of {report.matched:,} will be refused:")
    for each in refused[:SHOWN]:
        output.note(f"  {each.event_id}: {each.reason}")
    if report.refused_count > SHOWN:
        output.note(f"  ... and {report.refused_count - SHOWN:,} more")


def _print_report(session: Session, report: Replayed, refused: list[Refusal], still_dead: int) -> None:
    output, canary = session.output, report.canary
    if output.as_json:
        data: dict[str, Any] = {"matched": report.matched, "replayed": report.replayed, "dry_run": report.dry_run}
        data |= {"refused_count": report.refused_count, "conflicts": report.conflicts, "refused": refused}
        if canary is not None:
            data["canary"] = {"passed": canary.passed, **{name: getattr(canary, name) for name in _CANARY}}
            data["left"] = still_dead
        output.json(data)
        return
    if report.dry_run:
        output.text(f"{counted(report.matched - report.refused_count, 'event')} would be replayed")
    else:
        left = f", {report.refused_count:,} refused" if report.refused_count else ""
        output.text(f"{counted(report.replayed, 'event')} replayed{left}")
    if report.conflicts and report.dry_run:
        output.paragraph(
            f"{counted(report.conflicts, 'event')} would be refused, since another live event holds the unique key; "
            "--force replays them anyway, and then two live events have the same key"
        )
    if refused:
        output.table(("REFUSED", "REASON"), [(each.event_id, each.reason) for each in refused[:SHOWN]], wrap="REASON")
        if report.refused_count > SHOWN:
            output.text(f"... and {report.refused_count - SHOWN:,} more")


_CANARY = ("published", "died", "gone", "unsettled")


def _print_canary(session: Session, canary: Canary, left: int) -> None:
    output = session.output
    if canary.passed:
        output.note(f"canary: {counted(canary.published, 'event')} published")
        return
    words = canary.in_words
    if canary.died:
        output.table(("DEAD AGAIN", "ERROR"), list(canary.died.items()), wrap="ERROR")
    elif canary.gone:
        words += "; a relay with --on-dead drop may have removed them"
    else:
        words += (
            f". `{as_typed('why')}` says whether no relay is running, the box is paused or the breaker is open; remove "
            f"that, or wait longer with --canary-wait. `{as_typed('show', canary.unsettled[0])}` shows such an event"
        )
    if left:
        others = f"{counted(left, 'other event')} {'is' if left == 1 else 'are'} still dead"
        output.note(f"stopped after the canary: {words}. {others}")
    else:
        output.note(f"canary: {words}. There were no other events to replay")
