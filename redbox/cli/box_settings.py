"""`redbox pause`, `resume` and `configure`: settings that all users of a box share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from redbox.arguments import counted
from redbox.cli.options.changes import change_options, confirm, operator, require_answer
from redbox.cli.options.filters import resolved
from redbox.cli.options.parameters import DURATION, MOMENT, name_value_pairs
from redbox.cli.printing.failures import FAILED
from redbox.cli.printing.output import printable
from redbox.cli.session import Session, pass_session
from redbox.cli.why import as_typed
from redbox.durations import format_duration

if TYPE_CHECKING:
    from datetime import datetime

    from redbox import Box, Settings

key_option = click.option("--key", metavar="KEY", help="Only events of this ordering key.")


@click.command("pause")
@click.option("--for", "duration", type=DURATION, help="Duration of the pause, such as 10m; then the box resumes.")
@click.option("--until", type=MOMENT, help="End of the pause: ISO 8601 with a zone, or relative: +1h.")
@key_option
@change_options
@pass_session
def pause_command(
    session: Session,
    /,
    duration: timedelta | None,
    until: datetime | timedelta | None,
    key: str | None,
    dry_run: bool,
    yes: bool,
    why: str,
    who: str | None,
) -> None:
    """Stop all claims of the box, or of one ordering key.

    No relay claims an event until the pause ends or `redbox resume` ends it. Puts continue, and events in flight can
    still be settled. Relative times: `1h` is an hour ago, `+1h` an hour from now.

    \b
    Examples:
      redbox --box orders pause --why 'the provider is down'
      redbox --box orders pause --for 10m --why deploy --yes
      redbox --box orders pause --key order-7 --why 'wrong address'
    """
    if duration is not None and until is not None:
        raise click.UsageError("give either --for or --until, not both", click.get_current_context())
    require_answer(yes=yes, dry_run=dry_run)

    async def pause() -> str:
        async with _box(session, yes=yes or dry_run) as box:
            options = _given(duration=duration, key=key, **await resolved(box, {"until": until}))
            words = f"no event of {_what(session, key)} is claimed {_end(duration, options.get('until'))}"
            if not dry_run:
                confirm(f"Pause {_what(session, key)}? Then {words}. Puts continue.", yes=yes)
                await box.operate.pause(who=operator(who), why=why, **options)
            return words

    words = session.run(pause())
    data = {"action": "pause", "dry_run": dry_run, "key": key, "effect": words}
    session.output.document(data, printable(f"{'would pause' if dry_run else 'paused'}: {words}"))


@click.command("resume")
@click.option("--ramp", type=DURATION, help="Time in which the claim rate grows from a trickle to full, such as 5m.")
@key_option
@change_options
@pass_session
def resume_command(
    session: Session,
    /,
    ramp: timedelta | None,
    key: str | None,
    dry_run: bool,
    yes: bool,
    why: str,
    who: str | None,
) -> None:
    """End a pause: relays claim events again.

    With --ramp the rate grows slowly, so that a target that has just recovered is not flooded. A box that is not paused
    is not changed; if some of its ordering keys are paused, the command names them and exits with 1.

    \b
    Examples:
      redbox --box orders resume --why 'the provider is back'
      redbox --box orders resume --ramp 5m --yes
      redbox --box orders resume --key order-7 --yes
    """
    if ramp is not None and key is not None:
        ctx = click.get_current_context()
        raise click.UsageError("--ramp is for the whole box, and cannot be combined with --key", ctx)
    require_answer(yes=yes, dry_run=dry_run)

    what, verb = _what(session, key), "would resume" if dry_run else "resumed"
    unneeded = ("nothing to resume", f"{what} is not paused", 0)

    async def resume() -> tuple[str, str, int]:
        async with session.existing() as box:
            slowly = "" if ramp is None else f", slowly at first, and at full rate after {format_duration(ramp)}"
            stats = await box.stats()
            pending = next(count for phase, count in stats.phases.items() if phase.value == "AVAILABLE")
            paused = stats.paused if key is None else bool(await box.operate.paused_keys(key=key))
            ramping = key is None and not paused and stats.ramp_ends is not None
            ends_ramp = ramping and ramp is None
            if key is None and not (paused or ramping):  # a ramp would slow down a box that nobody stopped
                return unneeded if not stats.paused_keys else await _name_paused_keys(box, unneeded, stats.paused_keys)
            words = f"relays claim events of {what} again{slowly}"
            if ends_ramp:
                words = f"the ramp is ended, and relays claim events of {what} at full rate"
            elif key is not None and not (paused or yes or dry_run):  # else it is the result
                session.output.note(unneeded[1])
            if not dry_run:
                due = "" if key is not None else f" {pending:,} {'is' if pending == 1 else 'are'} available."
                confirm(f"Resume {what}? Then {words}.{due}", yes=yes)
                paused = await box.operate.resume(who=operator(who), why=why, **_given(ramp=ramp, key=key))
            return (verb, words, 0) if paused or ramping or ramp is not None else unneeded

    done, words, code = session.run(resume())
    data = {"action": "resume", "dry_run": dry_run, "key": key, "effect": words}
    session.output.document(data, "\n".join(map(printable, f"{done}: {words}".split("\n"))))
    click.get_current_context().exit(code)


async def _name_paused_keys(box: Box, unneeded: tuple[str, str, int], count: int) -> tuple[str, str, int]:
    """The result for a box that is not paused, while ordering keys are: the commands that resume the first ones."""
    from redbox.box.texts.stats_json import NAMED_KEYS

    named = await box.operate.paused_keys(limit=NAMED_KEYS)
    commands = [as_typed("resume", f"--key={each.key}") for each in named]
    more = ["..."] if count > len(named) else []
    keys = f"{counted(count, 'ordering key')} {'is' if count == 1 else 'are'}"
    lines = (f"{printable(unneeded[1])}, but {keys}:", *(f"  {each}" for each in commands + more))
    return unneeded[0], "\n".join(lines), FAILED


@click.command("configure")
@click.argument("changes", metavar="[NAME=VALUE]...", nargs=-1, callback=name_value_pairs)
@change_options
@pass_session
def configure_command(
    session: Session, /, changes: dict[str, str], dry_run: bool, yes: bool, why: str, who: str | None
) -> None:
    """Show or change the settings of the box.

    Without arguments it shows all settings with what they mean. A setting is stored in the box, and holds for all of
    its users. NAME=default restores the default. Durations: 12h, 7d, forever.

    \b
    Examples:
      redbox --box orders configure
      redbox --box orders configure keep_published=7d keep_dead=90d
      redbox --box orders configure dead_head=block --why 'order matters' --yes
      redbox --box orders configure max_pending=default
    """
    if not changes:
        _show(session)
        return
    from redbox.box.texts.setting_texts import parse_settings

    values, reset = parse_settings(changes)
    require_answer(yes=yes, dry_run=dry_run)

    async def configure() -> tuple[Settings, Settings]:
        from msgspec.structs import replace

        from redbox import Settings as Defaults

        async with _box(session, yes=yes or dry_run) as box:
            before = (await box.stats()).settings
            after: Settings = replace(before, **values, **{name: getattr(Defaults(), name) for name in reset})
            if not dry_run:
                confirm(f"Change {_changes(before, after, changes)} of box {session.box_name!r}?", yes=yes)
                after = await box.operate.configure(who=operator(who), why=why, reset=reset, **values)
            return before, after

    before, after = session.run(configure())
    if session.output.as_json:
        session.output.json(
            {
                "action": "configure",
                "dry_run": dry_run,
                "before": {name: getattr(before, name) for name in changes},
                "after": {name: getattr(after, name) for name in changes},
            }
        )
    else:
        session.output.text(f"{'would change' if dry_run else 'changed'} {_changes(before, after, changes)}")


def _changes(before: Settings, after: Settings, names: dict[str, str]) -> str:
    """`keep_published from 1d to 7d`, for each name."""
    from redbox.box.texts.setting_texts import format_setting

    return ", ".join(
        f"{name} from {format_setting(name, getattr(before, name))} to {format_setting(name, getattr(after, name))}"
        for name in names
    )


def _show(session: Session) -> None:
    from redbox.box.texts.setting_texts import describe_settings, settings_json

    async def read() -> tuple[Settings, list[str]]:
        async with session.existing() as box:
            stats = await box.stats()
            return stats.settings, stats.unreadable

    settings, unreadable = session.run(read())
    if session.output.as_json:
        session.output.json(settings_json(settings))
        return
    rows = [
        (each.name, each.value, "yes" if each.is_default else f"no, {each.default}", each.meaning)
        for each in describe_settings(settings)
    ]
    session.output.table(("SETTING", "VALUE", "DEFAULT", "MEANING"), rows, wrap="MEANING")
    for name in unreadable:
        if name.startswith("the setting "):
            session.output.paragraph(f"{printable(name)} cannot be read; its default holds. Set it again.", "red")


@asynccontextmanager
async def _box(session: Session, *, yes: bool) -> AsyncIterator[Box]:
    """The box. One that does not exist yet is created by the change; that is asked or noted first."""
    session.require_directory()
    async with session.open() as box:
        if not await box.exists():
            names = ", ".join(await box.names()) or "none"
            words = f"there is no box {box.name!r} on {session.where} yet (existing boxes: {names})"
            confirm(f"{words[0].upper()}{words[1:]}. Create it?", yes=yes)
            session.output.note(f"{words}; it is created")
        yield box


def _given(**options: Any) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def _what(session: Session, key: str | None) -> str:
    return f"box {session.box_name!r}" if key is None else f"ordering key {key!r} in box {session.box_name!r}"


def _end(duration: timedelta | None, until: datetime | None) -> str:
    from redbox.cli.printing.records import iso

    if duration is not None:
        return f"for {format_duration(duration)}"
    return "until it is resumed" if until is None else f"until {iso(until, brief=True)}"
