"""Is a relay slower beside a million events that it must not touch: scheduled, dead, or behind a blocked line?"""

from collections.abc import Callable

from bench.question import Answers, Contender, Goal, Question, events_per_second

CROWDS = {
    "scheduled": "1 million scheduled",
    "dead": "1 million dead",
    "waiting": "1 million behind one blocked ordering key",
}
CROWD = 1_000_000


def _ratio(name: str) -> Callable[[Answers], float]:
    return lambda answers: float(answers[name]["ratio"])


QUESTION = Question(
    name="crowded",
    title="drain beside a crowd",
    rounds=1,
    patience=300,
    beside=True,
    settings={"appendonly": "no"},
    contenders=tuple(
        Contender(name, "redbox_growth", CROWD, "redbox", environment="", variant=variant)
        for variant, name in CROWDS.items()
    ),
    columns={
        "events/s": events_per_second,
        "events/s without": lambda best: f"{best['alone_rate']:,.0f}",
        "ratio": lambda best: f"{best['ratio']:.2f}",
    },
    goals=tuple(
        Goal(f"beside {name}: unaffected (≥ 0.85 × without)", _ratio(name), at_least=0.85) for name in CROWDS.values()
    ),
    note="Drains of 10,000 events, alternating between a server with the crowd and one without; the best of four, and "
    "the median of their ratios. The append-only file is off, so that the disk does not matter.",
)
