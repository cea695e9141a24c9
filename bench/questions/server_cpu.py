"""How much of the server's CPU does an event take over its life, in batches of 500?"""

from bench.question import Contender, Goal, Question, lowest, microseconds
from bench.questions import names

QUESTION = Question(
    name="server_cpu",
    title="server CPU, µs per event in batches of 500",
    best=lowest,
    contenders=(
        Contender(names.REDBOX, "with_redbox", 50_000, "redbox", environment=""),
        Contender(names.PLAIN, "with_plain", 100_000, "floor"),
    ),
    columns={
        "put": microseconds("put_us"),
        "claim (XREADGROUP)": microseconds("claim_us"),
        "ack (XACK)": microseconds("ack_us"),
        "total": microseconds("total_us"),
    },
    goals=(Goal("≤ 20 µs for put + claim + ack", lambda of: of[names.REDBOX]["total_us"], at_most=20, unit="µs"),),
)
