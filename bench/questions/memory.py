"""How much of the server's memory does one waiting event take, with a payload of 512 random bytes?"""

from bench.question import Contender, Figures, Goal, Question, lowest
from bench.questions import names

EVENTS = 15_000  # just below a power of two, where hash tables are nearly full


def _cell(best: Figures) -> str:
    return f"{best['bytes']:,.0f}"


def _beyond_payload(words: str, name: str, limit: int) -> Goal:
    return Goal(words, lambda answers: float(answers[name]["beyond_payload"]), at_most=limit, unit="bytes")


QUESTION = Question(
    name="memory",
    title="bytes per waiting event",
    best=lowest,
    cell=_cell,
    rounds=1,
    contenders=(
        Contender(names.REDBOX, "with_redbox", EVENTS, "redbox", environment=""),
        Contender(names.VALKEY, "with_redbox", EVENTS, "redbox", environment="", server="valkey"),
        Contender(names.PLAIN, "with_plain", EVENTS, "floor"),
        Contender(names.FASTSTREAM, "with_faststream", EVENTS),
        Contender(names.BULLMQ, "with_bullmq", EVENTS),
        Contender(names.DRAMATIQ, "with_dramatiq", EVENTS),
        Contender(names.TASKIQ, "with_taskiq", EVENTS),
        Contender(names.SAQ, "with_saq", EVENTS),
        Contender(names.ARQ, "with_arq", EVENTS),
        Contender(names.STREAQ, "with_streaq", EVENTS),
    ),
    goals=(
        _beyond_payload("≤ 470 bytes beyond the payload on Valkey 9", names.VALKEY, 470),
        _beyond_payload("≤ 620 bytes beyond the payload on Redis 7", names.REDBOX, 620),
    ),
)
