"""How fast does one process consume and acknowledge waiting events, with a handler that does nothing?"""

from bench.question import Answers, Contender, Goal, Question, rate_and_cpu, ratio
from bench.questions import names

CONTENDERS = (
    Contender(names.REDBOX, "with_redbox", 60_000, "redbox", environment=""),
    Contender(names.PLAIN, "with_plain", 150_000, "floor"),
    Contender(names.XDEL, "with_plain", 120_000, "floor", variant="xdel"),
    Contender(names.FASTSTREAM_BATCH, "with_faststream", 50_000, variant="batch"),
    Contender(names.FASTSTREAM, "with_faststream", 3_500),
    Contender(names.BULLMQ, "with_bullmq", 5_000),
    Contender(names.DRAMATIQ, "with_dramatiq", 4_500),
    Contender(names.TASKIQ, "with_taskiq", 3_500),
    Contender(names.SAQ, "with_saq", 2_500),
    Contender(names.ARQ, "with_arq", 2_500),
    Contender(names.STREAQ, "with_streaq", 1_500),
)
_PER_MESSAGE = [each.name for each in CONTENDERS if each.kind == "peer" and each.variant != "batch"]


def to_best_per_message(answers: Answers) -> float:
    return float(answers[names.REDBOX]["rate"] / max(answers[name]["rate"] for name in _PER_MESSAGE if name in answers))


QUESTION = Question(
    name="drain",
    title="drain, no-op handler",
    cell=rate_and_cpu,
    contenders=CONTENDERS,
    goals=(
        Goal("≥ 0.33 × plain streams", ratio(names.REDBOX, names.PLAIN), at_least=0.33),
        Goal("≥ 1.2 × FastStream batch", ratio(names.REDBOX, names.FASTSTREAM_BATCH), at_least=1.2),
        Goal("≥ 10 × every per-message alternative", to_best_per_message, at_least=10),
    ),
)
