"""How fast do a hundred tasks put, each in a loop that awaits each put? A busy web application does this."""

from bench.question import Answers, Contender, Goal, Question, rate_and_cpu, ratio
from bench.questions import names

CONTENDERS = (
    Contender(names.REDBOX, "with_redbox", 50_000, "redbox", environment=""),
    Contender(names.PLAIN, "with_plain", 20_000, "floor"),
    Contender(names.COALESCED, "with_plain", 50_000, "floor", variant="coalesced"),
    Contender(names.FASTSTREAM, "with_faststream", 12_000),
    Contender(names.BULLMQ, "with_bullmq", 10_000),
    Contender(names.DRAMATIQ, "with_dramatiq", 4_500),
    Contender(names.TASKIQ, "with_taskiq", 5_000),
    Contender(names.SAQ, "with_saq", 10_000),
    Contender(names.ARQ, "with_arq", 5_000),
    Contender(names.STREAQ, "with_streaq", 6_000),
)
_PEERS = [contender.name for contender in CONTENDERS if contender.kind == "peer"]


def to_best_peer(answers: Answers) -> float:
    return float(answers[names.REDBOX]["rate"] / max(answers[name]["rate"] for name in _PEERS if name in answers))


QUESTION = Question(
    name="put_tasks",
    title="put, 100 tasks",
    cell=rate_and_cpu,
    contenders=CONTENDERS,
    goals=(
        Goal("≥ 2.5 × plain XADD by 100 tasks", ratio(names.REDBOX, names.PLAIN), at_least=2.5),
        Goal("≥ 3.5 × the best alternative", to_best_peer, at_least=3.5),
        Goal("for comparison: XADD with the same kind of coalescing", ratio(names.REDBOX, names.COALESCED)),
    ),
)
