"""Options that select events, shared by all commands that take several."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from redbox.cli.options.parameters import MOMENT

if TYPE_CHECKING:
    from redbox import Box

F = TypeVar("F", bound=Callable[..., Any])
NAMES = ("event_type", "key", "error", "group", "text", "since", "until", "created_since", "created_until")


def filter_options(function: F) -> F:
    """Adds the options that select events by what they are, and by time, to a command."""
    for option in reversed(
        (
            click.option("--type", "event_type", metavar="GLOB", help="Event type; * and ? are wildcards: 'user.*'."),
            click.option("--key", metavar="KEY", help="Ordering key or unique key."),
            click.option("--error", metavar="TEXT", help="Text in the last error, ignoring case."),
            click.option("--group", metavar="GROUP", help="Id of an error group, from `dead list --by-error`."),
            click.option("--text", metavar="TEXT", help="Text in the payload, ignoring case; reads all payloads."),
            click.option("--since", type=MOMENT, help="Earliest time, in ISO 8601 or relative, such as 1h."),
            click.option("--until", type=MOMENT, help="Latest time, in ISO 8601 or relative, such as 1h."),
            click.option("--created-since", type=MOMENT, help="Earliest created_at, as for --since."),
            click.option("--created-until", type=MOMENT, help="Latest created_at, as for --until."),
        )
    ):
        function = option(function)
    return function


def nothing_matches(what: str, filters: dict[str, Any]) -> str:
    """The remark that no event passes the filters. `what` is such as "dead events"."""
    patterns = "; in --type, * matches any text and ? one character"
    return f"no {what} match the filters{patterns if filters.get('event_type') is not None else ''}"


async def resolved(box: Box, filters: dict[str, Any]) -> dict[str, Any]:
    """The filters that were given; relative times are added to the store's time."""
    from redbox.box.bulk.selection import resolve_times

    return await resolve_times(box, filters)
