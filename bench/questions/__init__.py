"""All questions, in the order of the tables: first those that every library answers, then those of redbox alone."""

from __future__ import annotations

from bench.question import Question
from bench.questions import (
    crowded,
    drain,
    fsync,
    growth,
    http,
    latency,
    memory,
    ordered,
    put_bulk,
    put_one,
    put_tasks,
    relays,
    server_cpu,
    service,
    targets,
)

FOR_ALL = (put_one, put_tasks, put_bulk, drain, latency, memory)
OF_REDBOX = (server_cpu, growth, crowded, relays, ordered, fsync, http, targets, service)
ALL: dict[str, Question] = {module.QUESTION.name: module.QUESTION for module in FOR_ALL + OF_REDBOX}
