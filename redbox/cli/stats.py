"""`redbox stats` and `redbox boxes`: counts by phase."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import click

from redbox.cli.options.parameters import DURATION
from redbox.cli.printing.failures import FAILED
from redbox.cli.session import Session, pass_session
from redbox.errors import NotPermitted, StoreUnavailable

if TYPE_CHECKING:
    from datetime import timedelta

    from redbox import Box
    from redbox.box.desk.conditions import Condition
    from redbox.box.desk.rates import Rates
    from redbox.box.reports import PausedKey, Stats

WATCH_SECONDS: Final = 2
SHORTEST: Final = 0.1  # seconds between two readings
HOME, CLEAR, END_OF_LINE, BELOW = "\x1b[H", "\x1b[2J", "\x1b[K", "\x1b[J"


@click.command("stats")
@click.option(
    "--watch", type=DURATION, is_flag=False, flag_value=str(WATCH_SECONDS), metavar="[SECONDS]",
    help=f"Repeat until Ctrl-C, with rates.  [{WATCH_SECONDS} s if no value is given]",
)  # fmt: skip
@click.option(
    "--fail-if", "conditions", multiple=True, metavar="CONDITION",
    help="Exit with 1 if the condition holds, such as 'oldest>60s' or 'dead>0'; repeatable.",
)  # fmt: skip
@pass_session
def stats_command(session: Session, /, watch: timedelta | None, conditions: tuple[str, ...]) -> None:
    """Count the events of the box by phase, and show its relays.

    Every event is in one phase, even if it waits behind another event of its ordering key. Ages, rates,
    lifetime totals and the relays of the box follow. A relay is silent if its last heartbeat is more than 15 s old: if
    it is down, its events return to PENDING when their leases end. With --json, ages are in seconds.

    --watch repeats: in place on a terminal, block after block in a pipe, one object per line with --json. Its rates
    are measured between two readings; without --watch, they are those that the relays report.

    A condition of --fail-if compares a value by > >= < <= = or !=. Values: oldest (how long the oldest available event
    has waited; a duration), dead, available, scheduled, retrying, in_flight, pending, waiting, blocked, paused, lost,
    overdue, relays (alive), silent. With --watch, the command ends when one holds.

    \b
    Examples:
      redbox stats
      redbox stats --watch 5
      redbox stats --fail-if 'oldest>60s' --fail-if 'dead>0' --fail-if 'relays<1'
      redbox --json stats | jq '.relays[] | select(.breaker != "closed") | .reason'
      redbox --box orders --json stats | jq .phases.DEAD
    """
    from redbox.box.desk.conditions import Condition

    checks = [Condition.parse(text) for text in conditions]
    if watch is None:
        code = session.run(_read_once(session, checks))
    else:
        if watch.total_seconds() < SHORTEST:
            raise click.UsageError(f"--watch: at least {SHORTEST} s between two readings", click.get_current_context())
        try:
            code = session.run(_Watch(session, checks, watch.total_seconds()).run())
        except KeyboardInterrupt:
            code = 0
    click.get_current_context().exit(code)


async def _read_once(session: Session, checks: list[Condition]) -> int:
    from redbox.box.desk.rates import reported_rates
    from redbox.box.texts.stats_json import paused_keys

    async with session.existing() as box:
        stats = await box.stats()
        keys = await paused_keys(box, stats)
    return _print(session, stats, reported_rates(stats), keys, checks)


def _print(session: Session, stats: Stats, rates: Rates, keys: list[PausedKey], checks: list[Condition]) -> int:
    """Prints one reading and the conditions that hold; returns the exit code."""
    from redbox.box.desk.conditions import held
    from redbox.box.texts.stats_json import as_json
    from redbox.cli.printing import box_view

    found = held(checks, stats)
    if session.output.as_json:
        failed = {"failed": found} if checks else {}
        session.output.json({**as_json(stats, rates, keys), **failed})
    else:
        box_view.show(session, stats, rates, keys)
        for sentence in found:
            session.output.text(f"failed: {sentence}", "bold red")
    return FAILED if found else 0


class _Watch:
    """Prints a reading at each interval, until a condition holds. A store that does not answer is reported, and read
    again."""

    def __init__(self, session: Session, checks: list[Condition], seconds: float) -> None:
        self._session = session
        self._checks = checks
        self._seconds = seconds
        self._before: Stats | None = None
        self._drawn = False

    async def run(self) -> int:
        import asyncio

        async with self._session.existing() as box:
            await self._read(box)  # an error of the first reading ends the command
            while True:
                code = self._show()
                if code:
                    return code
                await asyncio.sleep(self._seconds)
                await self._read_again(box)

    async def _read(self, box: Box) -> None:
        from redbox.box.desk.rates import rates_between, reported_rates
        from redbox.box.texts.stats_json import paused_keys

        stats, before = await box.stats(), self._before
        self._keys = await paused_keys(box, stats)
        self._rates = reported_rates(stats) if before is None else rates_between(before, stats)
        self._before = stats

    async def _read_again(self, box: Box) -> None:
        import asyncio

        while True:
            try:
                await self._read(box)
            except StoreUnavailable as error:
                self._session.output.note(f"{error}; trying again every {self._seconds:g} s")
                await asyncio.sleep(self._seconds)
            else:
                return

    def _show(self) -> int:
        assert self._before is not None
        output = self._session.output
        if not output.terminal:
            code = _print(self._session, self._before, self._rates, self._keys, self._checks)
            if not output.as_json:
                click.echo("")
            sys.stdout.flush()
            return code
        with output.console.capture() as captured:
            code = _print(self._session, self._before, self._rates, self._keys, self._checks)
        lines = captured.get().splitlines()
        frame = "".join(f"{line}{END_OF_LINE}\n" for line in lines)
        begin = HOME if self._drawn else CLEAR + HOME
        self._drawn = True
        sys.stdout.write(f"{begin}{frame}{BELOW}")
        sys.stdout.flush()
        return code


COLUMNS: Final = ("AVAILABLE", "SCHEDULED", "RETRY", "IN_FLIGHT", "DEAD", "COMPLETED", "WAITING")


@click.command("boxes")
@pass_session
@click.pass_context
def boxes_command(ctx: click.Context, session: Session, /) -> None:
    """List the boxes of the store with their counts.

    RETRY is RETRY_SCHEDULED. WAITING is how many of the pending events wait behind another event of their key.

    The exit code is 1 if a box cannot be read.

    \b
    Examples:
      redbox boxes
      redbox --json boxes | jq -r 'select(.phases.DEAD > 0) | .box'
    """

    async def read() -> list[tuple[str, Stats | str]]:
        session.require_directory()
        found: list[tuple[str, Stats | str]] = []
        async with session.open() as any_box:  # keeps an embedded server running
            for name in await any_box.names():
                async with session.open(name) as box:
                    found.append((name, await _stats_or_reason(box)))
        return found

    found = session.run(read())
    from redbox.box.texts.stats_json import as_json

    if session.output.as_json:
        for name, stats in found:
            session.output.json({"box": name, "error": stats} if isinstance(stats, str) else as_json(stats))
    elif not found:
        session.output.note(f"there are no boxes on {session.where} yet; `redbox put` creates one")
    else:
        rows = [_row(name, stats) for name, stats in found]
        session.output.table(("BOX", *COLUMNS, "REMARK"), rows, right=COLUMNS, wrap="REMARK")
    ctx.exit(FAILED if any(isinstance(stats, str) for _, stats in found) else 0)


async def _stats_or_reason(box: Any) -> Stats | str:
    """The stats of the box, or the reason why it cannot be read; the other boxes are still listed."""
    from redbox.errors import StoreError

    try:
        stats: Stats = await box.stats()
    except NotPermitted as error:
        return str(error)
    except StoreUnavailable:
        raise
    except StoreError as error:
        return str(error)
    return stats


def _row(name: str, stats: Stats | str) -> tuple[str, ...]:
    if isinstance(stats, str):
        return (name, *("?" for _ in COLUMNS), stats)
    counts = {phase.value: count for phase, count in stats.phases.items()}
    counts |= {"RETRY": counts["RETRY_SCHEDULED"], "WAITING": stats.waiting}
    return (name, *(f"{counts[column]:,}" for column in COLUMNS), "paused" if stats.paused else "")
