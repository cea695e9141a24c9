"""Options that are given as NAME=VALUE, any number of times."""

from __future__ import annotations

import click


def name_value_pairs(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """A callback for click."""
    pairs = {}
    for text in values:
        name, found, value = text.partition("=")
        if not found or not name:
            raise click.BadParameter("write NAME=VALUE", ctx, param)
        pairs[name] = value
    return pairs
