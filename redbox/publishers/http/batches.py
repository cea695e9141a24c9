"""Batches of CloudEvents: which events share a request, what the request contains, and what its response means.

No event is marked DEAD because of another one in its batch: a rejected batch is sent again in halves, until each
rejected event was sent alone. An event with a failed attempt that counts is sent alone from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from redbox.errors import NotPublished
from redbox.events import Claim
from redbox.publishers.http.cloudevents import batched
from redbox.publishers.http.responses import BODY_SHOWN, response_error

BATCH_BYTES: Final = 1024 * 1024  # of the payloads of a batch; a larger event is sent alone
RESULT_BYTES: Final = 2048  # that are read of a response for each event
MULTI_STATUS: Final = 207
MOST: Final = 1000

Outcome = BaseException | None
_ACKNOWLEDGED: Final = frozenset({"accepted", "repeated"})


class _Result(msgspec.Struct):
    """What happened to one event: a word, as `redbox serve` says it, or an HTTP status."""

    status: str | int
    problem: Any = None


class _Results(msgspec.Struct):
    results: list[_Result]


_decode = msgspec.json.Decoder(_Results).decode


def groups(claims: Sequence[Claim]) -> Iterator[list[int]]:
    """The positions of events that share a request, in their order."""
    group: list[int] = []
    size = 0
    for at, claim in enumerate(claims):
        length = len(claim.event.encode()[0])
        if claim.attempts - claim.excused > 1:  # it, or another event of its batch, has failed before
            yield [at]
            continue
        if group and size + length > BATCH_BYTES:
            yield group
            group, size = [], 0
        group.append(at)
        size += length
    if group:
        yield group


def batch_body(claims: Sequence[Claim], source: str) -> bytes:
    """The events as one JSON array."""
    return b"[" + b",".join([batched(claim, source) for claim in claims]) + b"]"


def read_results(
    status: int, headers: Mapping[str, str], body: bytes, count: int, *, now: float, redact: Callable[[str], str]
) -> list[Outcome] | None:
    """The outcome for each event, by a response with a result for each; None if it has none.

    A response 207 without them is a failure of all. One with a status 4xx has acknowledged nothing, whatever its
    results say.
    """
    try:
        results = _decode(body).results
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        results = []
    if len(results) == count and status < 500:
        outcomes = [_outcome(result, headers, now, redact) for result in results]
        if status == MULTI_STATUS or None not in outcomes:
            return outcomes
    if status == MULTI_STATUS:
        return [NotPublished("HTTP 207 without a readable result for each event")] * count
    return None


def _outcome(result: _Result, headers: Mapping[str, str], now: float, redact: Callable[[str], str]) -> Outcome:
    if result.status in _ACKNOWLEDGED or (isinstance(result.status, int) and 200 <= result.status < 300):
        return None
    problem = result.problem if isinstance(result.problem, dict) else {}
    status = result.status if isinstance(result.status, int) else problem.get("status")
    detail = str(problem.get("detail") or "")
    if not isinstance(status, int) or result.status == "unknown":
        return NotPublished(redact(f"HTTP 207: {result.status} {detail}".strip())[:BODY_SHOWN])
    wait = problem.get("retry_after")
    own = {"retry-after": str(wait)} if isinstance(wait, int) else headers
    return response_error(status, "", own, detail.encode(), now=now, redact=redact)
