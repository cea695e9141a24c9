"""What does order cost? A drain of events with 1,000 ordering keys, beside one without."""

from bench.question import Contender, Goal, Question, events_per_second, microseconds, ratio

UNORDERED, ORDERED = "unordered", "1,000 ordering keys"

QUESTION = Question(
    name="ordered",
    title="drain, ordered",
    contenders=(
        Contender(UNORDERED, "with_redbox", 60_000, "redbox", environment="", asked="drain"),
        Contender(ORDERED, "with_redbox", 30_000, "redbox", environment="", asked="drain", variant="ordered"),
    ),
    columns={"events/s": events_per_second, "server CPU µs per event": microseconds("server_us")},
    goals=(Goal("≥ 0.5 × unordered", ratio(ORDERED, UNORDERED), at_least=0.5),),
)
