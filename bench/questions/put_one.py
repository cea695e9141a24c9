"""How fast is one loop that awaits each put?

Server and client share one core: on two cores, such a loop mostly measures how fast one core wakes the other.
"""

from bench.question import Contender, Goal, Question, rate_and_cpu, ratio
from bench.questions import names

QUESTION = Question(
    name="put_one",
    title="put, one awaiting loop, one core",
    cell=rate_and_cpu,
    pinned=True,
    contenders=(
        Contender(names.REDBOX, "with_redbox", 9_000, "redbox", environment=""),
        Contender(names.PLAIN, "with_plain", 12_000, "floor"),
        Contender(names.FASTSTREAM, "with_faststream", 9_000),
        Contender(names.BULLMQ, "with_bullmq", 4_000),
        Contender(names.DRAMATIQ, "with_dramatiq", 3_500),
        Contender(names.TASKIQ, "with_taskiq", 3_500),
        Contender(names.SAQ, "with_saq", 4_500),
        Contender(names.ARQ, "with_arq", 2_000),
        Contender(names.STREAQ, "with_streaq", 2_500),
    ),
    goals=(Goal("≥ 0.8 × plain XADD", ratio(names.REDBOX, names.PLAIN), at_least=0.8),),
)
