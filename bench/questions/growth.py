"""Does an event cost more when millions are pending? The append-only file is off, so that the disk does not matter."""

from collections.abc import Callable

from bench.question import Answers, Contender, Figures, Goal, Question
from bench.questions import names

FLAT = 1.15


def _worst(figure: str) -> Goal:
    def measured(answers: Answers) -> float:
        return float(max(step["ratio"][figure] for step in answers[names.REDBOX]["steps"]))

    what, where = ("put", "claim + ack")["claim" in figure], ("wall time", "server CPU")["server" in figure]
    return Goal(f"{what}, {where}: flat (+ 15 %) from 10 thousand pending to 5 million", measured, at_most=FLAT)


def _plain(answers: Answers) -> float:
    return float(max(step["ratio"]["plain_server_us"] for step in answers[names.REDBOX]["steps"]))


def _both(figure: str) -> Callable[[Figures], str]:
    return lambda step: f"{step[figure]:.1f} ({step['ratio'][figure]:.2f})"


def _rows(name: str, best: Figures) -> list[tuple[str, Figures]]:  # noqa: ARG001  # there is only redbox
    return [(f"{step['pending']:,} pending", step) for step in best["steps"]]


QUESTION = Question(
    name="growth",
    title="growth, µs per event in batches of 500",
    best=lambda rounds: rounds[0],
    rows=_rows,
    rounds=1,
    patience=300,
    beside=True,
    settings={"appendonly": "no"},
    contenders=(Contender(names.REDBOX, "redbox_growth", 5_000_000, "redbox", environment=""),),
    columns={
        "put": _both("put_us"),
        "put, server CPU": _both("put_server_us"),
        "claim + ack": _both("claim_ack_us"),
        "claim + ack, server CPU": _both("claim_ack_server_us"),
        "plain SET, HSET, ZADD, server CPU": _both("plain_server_us"),
    },
    goals=(
        *(_worst(name) for name in ("put_server_us", "claim_ack_server_us", "put_us", "claim_ack_us")),
        Goal("for comparison: plain SET, HSET and ZADD of the same keys in the same server", _plain),
    ),
    note="The lowest of 24 measurements of 500 events. In brackets: the ratio to the cost in a box of 10 thousand "
    "on a second server, measured alternately; the median. Payloads of 16 bytes; the append-only file is off, so "
    "that the disk does not matter. Not included: while the server doubles its key table, at each power of two, a put "
    "costs the server up to twice as much.",
)
