"""How many events per second does a relay publish to each kind of target, and how many does the target's own client?"""

from collections.abc import Callable

from bench.question import Contender, Figures, Goal, Question, events_per_second, ratio

#: By kind of target: its name in the tables, and how many events take a second or two.
KINDS = {
    "rabbitmq": ("RabbitMQ", 10_000),
    "nats": ("NATS JetStream", 20_000),
    "kafka": ("Kafka, librdkafka's mock cluster", 60_000),
    "http": ("HTTP", 15_000),
}
TO_BOX, TO_NULL = "redbox to a box on the same server", "redbox to null:"
FULL = 85  # percent of a core


def to(kind: str) -> str:
    return f"redbox to {KINDS[kind][0]}"


def bare(kind: str) -> str:
    return f"bare client of {KINDS[kind][0]}"


def _percent(best: Figures, figure: str) -> float:
    """The share of a core, from CPU time per event in µs."""
    return float(best[figure] * best["rate"] / 1e4)


def _cpu(figure: str) -> Callable[[Figures], str]:
    return lambda best: f"{_percent(best, figure):.0f} %"


def _limit(best: Figures) -> str:
    if _percent(best, "client_us") >= FULL:
        return "the publishing process"
    return "the box's server" if _percent(best, "server_us") >= FULL else "the target"


QUESTION = Question(
    name="targets",
    title="drain to each kind of target",
    contenders=(
        *(
            contender
            for kind, (_, events) in KINDS.items()
            for contender in (
                Contender(to(kind), "redbox_targets", events, "redbox", environment="", variant=kind, target=kind),
                Contender(bare(kind), "bare_targets", events, "floor", environment="", variant=kind, target=kind),
            )
        ),
        Contender(TO_BOX, "redbox_targets", 60_000, "redbox", environment="", variant="box"),
        Contender(TO_NULL, "redbox_targets", 60_000, "redbox", environment="", variant="null"),
    ),
    columns={
        "events/s": events_per_second,
        "CPU of the process": _cpu("client_us"),
        "CPU of the box's server": _cpu("server_us"),
        "limit": _limit,
    },
    goals=(
        *(
            Goal(f"{KINDS[kind][0]}: ≥ 0.5 × the bare client", ratio(to(kind), bare(kind)), at_least=0.5)
            for kind in KINDS
        ),
        Goal("box to box: ≥ 15,000 events/s", lambda all_: float(all_[TO_BOX]["rate"]), at_least=15_000, unit="/s"),
        Goal("for comparison: box to box, to null:", ratio(TO_BOX, TO_NULL)),
    ),
    note="A bare client publishes batches of 500 (HTTP: 100 requests at once) with the same acknowledgements: confirms "
    "of RabbitMQ for persistent messages in a durable queue, acks of JetStream with file storage, acks=all with the "
    "idempotent producer. It does not claim, acknowledge or retry events. RabbitMQ, NATS and nginx are processes of "
    "their own on the same cores; the mock cluster of Kafka is a part of the benchmark's process, and has no disk.",
)
