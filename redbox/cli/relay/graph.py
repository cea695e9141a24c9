"""The graph of a redbox.toml: which box leads where. It is checked as a whole before anything starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redbox.cli.options.placeholders import expand_url
from redbox.cli.relay.config import At, Config, ConfigError
from redbox.routing.address import is_box, read_address
from redbox.routing.graph import Kind, Leg, Node, find_problems
from redbox.store import connect

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from redbox.cli.relay.settings import RelaySettings
    from redbox.relay import Relay


def legs_of(config: Config, relays: Sequence[Relay]) -> list[Leg]:
    """Every way from a box of the file, in its order."""
    found = []
    for number, (settings, relay) in enumerate(zip(config.relay, relays, strict=True)):
        source = Node(relay.box.name, relay.box.where)
        for kind, match, url, at in _targets(settings):
            node, text = None, relay.dead_target if kind == "dead_to" else relay.target
            if is_box(url):
                address = read_address(url)
                where = source.where if address.store is None else connect.describe(address.store)
                node, text = Node(address.name, where), address.text
            found.append(Leg(source, kind, text or "", node, match, ("relay", number, *at)))
    return found


def _targets(settings: RelaySettings) -> Iterator[tuple[Kind, str | None, str, At]]:
    """The targets of a relay: the kind of the leg, its pattern, the URL, and where the table has it."""
    if settings.to is not None:
        yield "to", None, expand_url(settings.to), ("to",)
    for number, route in enumerate(settings.routes or ()):
        for url, at in _each(route.to):
            yield "route", route.match, expand_url(url), ("routes", number, "to", *at)
    if settings.default is not None:
        for url, at in _each(settings.default):
            yield "default", None, expand_url(url), ("default", *at)
    if settings.dead_to is not None:
        yield "dead_to", None, expand_url(settings.dead_to), ("dead_to",)


def _each(targets: str | list[str]) -> list[tuple[str, At]]:
    if isinstance(targets, str):
        return [(targets, ())]
    return [(target, (number,)) for number, target in enumerate(targets)]


def check_graph(path: Path, config: Config, relays: Sequence[Relay]) -> None:
    """Raises ConfigError for a destination that nothing drains, and for a cycle."""
    legs = legs_of(config, relays)
    stores = {leg.source.where for leg in legs}
    others = [Node(name, where) for name in config.other_boxes for where in stores]
    problems = find_problems(legs, others)
    if problems:
        leg, text = problems[0]
        number = leg.at[1]
        assert isinstance(number, int)
        raise ConfigError.at(path, leg.at, f"relay {number + 1} (box {leg.source.box}): {leg.at[2]}: {text}")


def as_json(path: Path, legs: Sequence[Leg]) -> dict[str, Any]:
    """The graph as one document."""
    boxes: dict[Node, list[Leg]] = {}
    for leg in legs:
        boxes.setdefault(leg.source, []).append(leg)
    return {
        "file": str(path),
        "relays": [
            {
                "box": node.box,
                "store": node.where,
                "targets": [
                    {
                        "kind": leg.kind,
                        "target": leg.target,
                        "box": None if leg.node is None else leg.node.box,
                        **({} if leg.match is None else {"match": leg.match}),
                    }
                    for leg in found
                ],
            }
            for node, found in boxes.items()
        ],
    }


def as_lines(legs: Sequence[Leg]) -> list[str]:
    """The graph as text: one line per box, and one per way from it."""
    lines: list[str] = []
    last: Node | None = None
    for leg in legs:
        if leg.source != last:
            lines.append(f"{leg.source.box}  ({leg.source.where})")
            last = leg.source
        label = {"to": "", "default": "everything else ", "dead_to": "dead letters "}.get(leg.kind, f"{leg.match} ")
        lines.append(f"  {label}→ {leg.target}")
    return lines
