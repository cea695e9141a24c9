"""Types of command-line parameters: durations, times, and NAME=VALUE pairs."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from redbox.durations import parse_duration, parse_moment

if TYPE_CHECKING:
    DurationType = click.ParamType[timedelta]
    MomentType = click.ParamType[datetime | timedelta]
else:
    DurationType = MomentType = click.ParamType  # generic since click 8.4


class DurationParameter(DurationType):
    """A duration as a timedelta."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        try:
            return parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class MomentParameter(MomentType):
    """A time in ISO 8601 with a zone as a datetime or, if `relative`, `1h` (ago) or `+1h` (from now) as a timedelta.

    The caller adds a timedelta to the store's time: the clock of this machine decides nothing.
    """

    name = "time"

    def __init__(self, relative: bool = True) -> None:
        self.relative = relative

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime | timedelta:
        if isinstance(value, datetime | timedelta):
            return value
        try:
            return parse_moment(value, relative=self.relative)
        except ValueError as error:
            self.fail(str(error), param, ctx)


DURATION: Final = DurationParameter()
MOMENT: Final = MomentParameter()
ABSOLUTE_MOMENT: Final = MomentParameter(relative=False)


def name_value_pairs(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """A callback of click for a repeatable option: NAME=VALUE texts as a dict."""
    pairs = {}
    for text in values:
        name, found, value = text.partition("=")
        if not found or not name:
            raise click.BadParameter("write NAME=VALUE", ctx, param)
        pairs[name] = value
    return pairs
