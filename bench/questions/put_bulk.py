"""How fast is the library's bulk put, with 500 events per call?"""

from bench.question import Contender, Goal, Question, rate_and_cpu, ratio
from bench.questions import names

QUESTION = Question(
    name="put_bulk",
    title="put, bulk of 500",
    cell=rate_and_cpu,
    contenders=(
        Contender(names.REDBOX, "with_redbox", 75_000, "redbox", environment=""),
        Contender(names.PLAIN, "with_plain", 75_000, "floor"),
        Contender(names.FASTSTREAM, "with_faststream", 35_000),
        Contender(names.BULLMQ, "with_bullmq", 14_000),
        Contender(names.STREAQ, "with_streaq", 11_000),
    ),
    goals=(Goal("≥ 1.0 × plain pipelined XADD", ratio(names.REDBOX, names.PLAIN), at_least=1.0),),
    note="dramatiq, taskiq, SAQ and arq have no bulk put.",
)
