"""How fast are puts that wait for the disk?

100 tasks put on a server with `appendfsync always`, which syncs once for all waiting clients.
"""

from bench.question import Answers, Contender, Goal, Question, events_per_second, microseconds
from bench.questions import names

XADD, SET = "plain XADD", "plain SET"


def _to_best_plain(answers: Answers) -> float:
    return float(answers[names.REDBOX]["rate"] / max(answers[name]["rate"] for name in (XADD, SET)))


QUESTION = Question(
    name="fsync",
    title="put by 100 tasks, on disk when it returns",
    settings={"appendonly": "yes", "appendfsync": "always"},
    contenders=(
        Contender(names.REDBOX, "with_redbox", 20_000, "redbox", environment="", asked="put_tasks", variant="fsync"),
        Contender(XADD, "with_plain", 10_000, "floor", asked="put_tasks"),
        Contender(SET, "with_plain", 10_000, "floor", asked="put_tasks", variant="set"),
    ),
    columns={"events/s": events_per_second, "server CPU µs per event": microseconds("server_us")},
    goals=(Goal("≥ 0.5 × the server's own rate for plain writes", _to_best_plain, at_least=0.5),),
)
