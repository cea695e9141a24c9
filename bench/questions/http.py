"""How many events per second does a relay post to an HTTP target, and how many does its bare client?"""

from bench.question import Contender, Figures, Goal, Question, events_per_second, ratio

REDBOX, SIGNED = "redbox", "redbox, signed (Standard Webhooks)"
AIOHTTP, PYREQWEST, HTTPX = "bare aiohttp, which redbox uses", "bare pyreqwest", "bare httpx"
SAQ = "SAQ, a job that posts by aiohttp"


def _delivery(best: Figures) -> str:
    return f"{best['p50_ms']:.1f} / {best['p99_ms']:.1f}"


QUESTION = Question(
    name="http",
    title="drain to an HTTP target",
    contenders=(
        Contender(REDBOX, "redbox_http", 20_000, "redbox", environment="", target="http"),
        Contender(SIGNED, "redbox_http", 20_000, "redbox", environment="", variant="signed", target="http"),
        Contender(AIOHTTP, "http_clients", 20_000, "floor", environment="http", variant="aiohttp", target="http"),
        Contender(PYREQWEST, "http_clients", 30_000, "floor", environment="http", variant="pyreqwest", target="http"),
        Contender(HTTPX, "http_clients", 500, "floor", environment="http", variant="httpx", target="http"),
        Contender(SAQ, "http_saq", 2_500, environment="http", target="http"),
    ),
    columns={"events/s": events_per_second, "one POST, p50 / p99 ms": _delivery},
    goals=(
        Goal("≥ 0.6 × the bare client", ratio(REDBOX, AIOHTTP), at_least=0.6),
        Goal("signed, ≥ 0.8 × unsigned", ratio(SIGNED, REDBOX), at_least=0.8),
        Goal("a POST, p99 ≤ 2 × that of the bare client", ratio(REDBOX, AIOHTTP, "p99_ms"), at_most=2),
    ),
    note="A bare client is 100 tasks that post one request after another, with headers like redbox's. It does not "
    "claim, acknowledge or retry events, and has no time limits.",
)
