"""How long does an event take from its put in one process to an idle handler in another?"""

from bench.question import Contender, Figures, Goal, Question, lowest, ratio
from bench.questions import names

EVENTS = 500


def _cell(best: Figures) -> str:
    return f"{best['p50_ms']:.2f} / {best['p99_ms']:.2f}"


QUESTION = Question(
    name="latency",
    title="put→handler p50 / p99 ms",
    best=lowest,
    cell=_cell,
    contenders=(
        Contender(names.REDBOX, "with_redbox", EVENTS, "redbox", environment=""),
        Contender(names.PLAIN, "with_plain", EVENTS, "floor"),
        Contender(names.FASTSTREAM_BATCH, "with_faststream", EVENTS, variant="batch"),
        Contender(names.FASTSTREAM, "with_faststream", EVENTS),
        Contender(names.BULLMQ, "with_bullmq", EVENTS),
        Contender(names.DRAMATIQ, "with_dramatiq", EVENTS),
        Contender(names.TASKIQ, "with_taskiq", EVENTS),
        Contender(names.SAQ, "with_saq", EVENTS),
        Contender(names.ARQ, "with_arq", EVENTS),
        Contender(names.STREAQ, "with_streaq", EVENTS),
    ),
    goals=(
        Goal("p50 ≤ 2 × plain streams", ratio(names.REDBOX, names.PLAIN, "p50_ms"), at_most=2),
        Goal("p99 ≤ 3 × plain streams", ratio(names.REDBOX, names.PLAIN, "p99_ms"), at_most=3),
    ),
    note="By default, arq polls every half second and BullMQ runs one job at a time.",
)
