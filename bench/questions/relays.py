"""Do two relay processes publish more than one, and what is the limit?"""

from bench.question import Contender, Figures, Goal, Question, events_per_second, ratio

EVENTS = 200_000
PAUSES = {"no-op publisher": 0, "publisher of 2 ms": 0.002, "publisher of 20 ms": 0.02}
FULL = 90  # percent


def _limit(best: Figures) -> str:
    """The resource that is fully used."""
    if best["server_percent"] >= FULL:
        return "the server's one thread"
    if best["machine_percent"] >= FULL:
        return f"the machine: all {best['cores']} cores are busy"
    if best["client_percent"] >= FULL:
        return "the relay's one thread"
    return "the publisher's time" if best["pause"] else "server and relay wait for each other"


QUESTION = Question(
    name="relays",
    title="one relay process and two",
    contenders=tuple(
        Contender(f"{count}, {name}", "redbox_relays", EVENTS, "redbox", environment="", variant=f"{number}, {pause}")
        for name, pause in PAUSES.items()
        for number, count in ((1, "one relay"), (2, "two relays"))
    ),
    columns={
        "events/s": events_per_second,
        "server CPU": lambda best: f"{best['server_percent']} %",
        "CPU of each relay": lambda best: f"{best['client_percent']} %",
        "all cores": lambda best: f"{best['machine_percent']} %",
        "limit": _limit,
    },
    rounds=2,
    goals=(
        Goal(
            "≥ 1.5 × one, where neither server nor machine is the limit (publisher of 20 ms)",
            ratio("two relays, publisher of 20 ms", "one relay, publisher of 20 ms"),
            at_least=1.5,
        ),
        *(
            Goal(
                f"for comparison: two to one, {name}; its limit is below",
                ratio(f"two relays, {name}", f"one relay, {name}"),
            )
            for name, pause in PAUSES.items()
            if pause < 0.02
        ),
    ),
)
