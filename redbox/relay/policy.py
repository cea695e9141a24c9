"""What a relay is told to do, checked."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from redbox.arguments import one_of, whole_number
from redbox.backoff import Backoff
from redbox.durations import Duration, duration, positive_duration
from redbox.errors import UsageError
from redbox.settings import BATCH_BYTES, BATCH_COUNT

ATTEMPTS: Final = 10
CONCURRENCY: Final = 100
BATCH: Final = 100  # a larger reply takes a server several turns to write, and others come in between
BUFFER: Final = 1000
BUFFER_BYTES: Final = 4 * BATCH_BYTES
TIME_LIMIT: Final = 30.0
POLL: Final = 2.0
GRACE: Final = 10.0
MOST: Final = 10**12  # attempts

Keep = Literal["keep", "delete"]
KeepDead = Literal["keep", "drop"]


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a relay; durations in seconds."""

    backoff: Backoff
    attempts: int | None
    max_age: float | None
    lease: float
    concurrency: int
    batch: int
    buffer: int
    buffer_bytes: int
    time_limit: float | None
    poll: float
    grace: float
    delete: bool
    drop: bool


def check_policy(
    *,
    backoff: Backoff | None,
    attempts: int | None,
    max_age: Duration | None,
    lease: Duration,
    concurrency: int,
    batch: int,
    buffer: int,
    buffer_bytes: int,
    time_limit: Duration | None,
    poll: Duration,
    grace: Duration,
    on_success: str,
    on_dead: str,
) -> Policy:
    """A policy, or a UsageError that says which setting is wrong."""
    if backoff is not None and not isinstance(backoff, Backoff):
        raise UsageError("backoff must be a Backoff: Backoff.exponential(1.0), Backoff.fixed(600), Backoff(function)")
    whole_number("concurrency", concurrency)
    whole_number("batch", batch, 1, BATCH_COUNT)
    whole_number("buffer", buffer)
    whole_number("buffer_bytes", buffer_bytes)
    if attempts is not None:
        whole_number("attempts", attempts, 1, MOST)
    if attempts is None and backoff is not None and backoff.immediate:
        raise UsageError("retries without a delay need a limit of attempts: give one, or a delay such as 1 s")
    one_of("on_success", on_success, ("keep", "delete"))
    one_of("on_dead", on_dead, ("keep", "drop"))
    return Policy(
        backoff=backoff or Backoff.exponential(),
        attempts=attempts,
        max_age=None if max_age is None else positive_duration("max_age", max_age),
        lease=positive_duration("lease", lease),
        concurrency=concurrency,
        batch=batch,
        buffer=buffer,
        buffer_bytes=buffer_bytes,
        time_limit=None if time_limit is None else positive_duration("time_limit", time_limit),
        poll=positive_duration("poll", poll),
        grace=duration("grace", grace),
        delete=on_success == "delete",
        drop=on_dead == "drop",
    )


def check_every(name: str, value: Duration | None) -> float | None:
    """How often a service runs, in seconds; None for never."""
    return None if value is None else positive_duration(name, value)
