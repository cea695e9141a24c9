"""How many events per second does the HTTP service store, and what does a handler reach that stores nothing?"""

from bench.question import Answers, Contender, Figures, Goal, Question, ratio

BARE, ONE, BATCHES, MEMORY = "a handler that stores nothing", "one event per request", "batches of 100", "memory"


def _rate(best: Figures) -> str:
    return f"{best['rate']:,.0f}" if "p99_ms" in best else ""


def _latency(best: Figures) -> str:
    return f"{best['p50_ms']:.1f} / {best['p99_ms']:.1f}" if "p99_ms" in best else ""


def _memory(best: Figures) -> str:
    return f"{best['first_mib']:.0f} → {best['last_mib']:.0f}" if "last_mib" in best else ""


def _growth(answers: Answers) -> float:
    return float(answers[MEMORY]["last_mib"] / answers[MEMORY]["first_mib"])


QUESTION = Question(
    name="service",
    patience=300,
    title="ingest over HTTP",
    contenders=(
        Contender(BARE, "redbox_service", 1000, "floor", environment="", variant="bare"),
        Contender(ONE, "redbox_service", 1000, "redbox", environment="", variant="one"),
        Contender(BATCHES, "redbox_service", 1000, "redbox", environment="", variant="batch"),
        Contender(MEMORY, "redbox_service", 1_000_000, "redbox", environment="", variant="memory"),
    ),
    columns={"events/s": _rate, "a request, p50 / p99 ms": _latency, "memory of the process, MiB": _memory},
    goals=(
        Goal("one event per request, ≥ 0.6 × the bare handler", ratio(ONE, BARE), at_least=0.6),
        Goal("one event per request, p99 ≤ 5 × that of the bare handler", ratio(ONE, BARE, "p99_ms"), at_most=5),
        Goal("batches of 100", lambda answers: float(answers[BATCHES]["rate"]), at_least=20_000, unit="events/s"),
        Goal("memory after all events ≤ 1.2 × that after a tenth of them", _growth, at_most=1.2),
    ),
    note="wrk in another process, with 64 connections, or 8 for batches. The embedded server syncs its file before it "
    "answers. The bare handler is one of the same application that reads the body. Memory: a relay drains the box "
    "to a null target while batches are posted; the growth of the process from a tenth of the events to all.",
)
