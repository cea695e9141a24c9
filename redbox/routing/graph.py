"""The graph of boxes and targets that the relays of one configuration form, and its problems."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

Kind = Literal["to", "route", "default", "dead_to"]


class Node(NamedTuple):
    """A box, and the store that holds it."""

    box: str
    where: str


class Leg(NamedTuple):
    """One edge of the graph: from a box to another box, or to any other target (`node` is None).

    `match`: the pattern of a route. `at`: where the configuration says so, for errors.
    """

    source: Node
    kind: Kind
    target: str
    node: Node | None
    match: str | None = None
    at: tuple[str | int, ...] = ()


class Problem(NamedTuple):
    """What is wrong with a leg, in a sentence."""

    leg: Leg
    text: str


def find_problems(legs: Sequence[Leg], drained: Iterable[Node]) -> list[Problem]:
    """What is wrong with these legs. `drained`: boxes that other relays drain.

    A box that nothing drains would only grow; an event in a cycle would return to a box that has it. A dead letter may
    stay in its box.
    """
    live = [leg for leg in legs if leg.kind != "dead_to"]
    known = {*drained, *(leg.source for leg in legs)}
    stores = {leg.source.where for leg in legs}
    problems = [
        Problem(leg, f"no relay in this file drains box {leg.node.box}; add one, or name the box in other_boxes")
        for leg in live
        if leg.node is not None and leg.node.where in stores and leg.node not in known
    ]
    problems += [
        Problem(leg, f"box {leg.source.box} cannot be the target of its own relay")
        for leg in legs
        if leg.node == leg.source
    ]
    cycle = _find_cycle([leg for leg in live if leg.node != leg.source])
    if cycle:
        names = " → ".join([cycle[0].source.box, *(leg.node.box for leg in cycle if leg.node is not None)])
        problems.append(Problem(cycle[-1], f"the boxes form a cycle: {names}"))
    return problems


def _find_cycle(legs: Sequence[Leg]) -> list[Leg]:
    """The legs of a cycle, in order; empty if there is none."""
    left = [leg for leg in legs if leg.node is not None]
    while True:  # a box that no leg leads to, or that leads nowhere, is part of no cycle
        sources, ends = {leg.source for leg in left}, {leg.node for leg in left}
        kept = [leg for leg in left if leg.node in sources and leg.source in ends]
        if len(kept) == len(left):
            break
        left = kept
    if not left:
        return []
    onward = {leg.source: leg for leg in reversed(left)}
    way = [onward[left[0].source]]
    while (end := way[-1].node) not in {leg.source for leg in way}:
        assert end is not None
        way.append(onward[end])
    return way[next(at for at, leg in enumerate(way) if leg.source == end) :]
