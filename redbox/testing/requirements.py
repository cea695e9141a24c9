"""What redbox must do, line by line. Tests name the lines they prove: `@pytest.mark.req("PL-6")`."""

from __future__ import annotations

from typing import Final

REQUIREMENTS: Final[dict[str, str]] = {
    # Event model
    "EM-1": "event_id is unique, immutable, a UUIDv7 by default; putting one that exists changes nothing and says so",
    "EM-2": "event_type is a validated, immutable identifier: non-empty, bounded, printable, no spaces",
    "EM-3": "payload is opaque: bytes untouched, anything else encoded once at put; byte-identical ever after",
    "EM-4": "state is PENDING, CLAIMED, PUBLISHED or DEAD, and nothing else",
    "EM-5": "created_at is set by the store when persisted, and never changes",
    "EM-6": "partition_key reaches the publisher and has no effect on order",
    "EM-7": "ordering_key puts events into a line (see OP)",
    "EM-8": "metadata stays inside and carries the trace context of the span that called put",
    "EM-9": "headers are delivered as they are; reserved names are refused at put",
    "EM-10": "attempts is counted in the claim and never decreases; attempts that prove nothing are excused",
    "EM-11": "last_error is updated on every failure, bounded, readable",
    "EM-12": "no event is claimed before its available_at, given as a delay or a moment",
    "EM-13": "claimed_at and claimed_by are set exactly while CLAIMED",
    "EM-14": "published_at is set exactly while PUBLISHED; the last 8 attempts are kept as history",
    "EM-15": "nothing changes the immutable fields",
    # Lifecycle
    "PL-1": "only the drawn transitions happen; the scripts refuse every other one with a reason",
    "PL-2": "claim takes only PENDING, available events and sets claimed_at, claimed_by and a lease",
    "PL-3": "success makes an event PUBLISHED with published_at",
    "PL-4": "failure or expiry makes it PENDING: counted once, last_error, available_at, claim cleared",
    "PL-5": "DEAD when a termination condition holds; never retried by itself",
    "PL-6": "finalization is fenced by (claimed_by, a claim number that never repeats); a late lease still settles",
    "PL-7": "relays killed anywhere, double claims, half-failed batches: nothing is lost",
    "PL-8": "many relays whose clocks disagree: only the store's clock decides",
    "PL-9": "PUBLISHED and DEAD never change by themselves",
    # Store contract
    "SC-1": "put returns only after the event is persisted at the chosen durability; nobody sees it before",
    "SC-2": "claim never returns more than its limit; oldest available_at first",
    "SC-3": "two relays never hold one event while its lease lives",
    "SC-4": "updates are atomic per event; hash and indexes always agree",
    "SC-5": "the store has no retry policy: delays and limits come in as arguments",
    "SC-6": "terminal events stay readable until retention removes them, and are never eligible",
    "SC-7": "expired claims become eligible again; bounded, safe with any number of reapers",
    "SC-8": "reading never changes state",
    # Delivery semantics
    "DS-1": "at least once; when duplicates happen is documented, with a consumer that dedups on event_id",
    "DS-2": "stronger guarantees state their conditions and limits, and a test shows each",
    # Publishers
    "PC-1": "one attempt per call; success only on the target's own acknowledgement",
    "PC-2": "payload unmodified; headers, event_id, event_type and partition_key passed on",
    "PC-3": "safe under concurrent calls; a batch form with an outcome for each event",
    "PC-4": "errors are classified: retry, not before, or never",
    # Retries and failures
    "RF-1": "exponential, fixed or custom delay with jitter; retrying never blocks a relay",
    "RF-2": "'3 attempts, every 10 minutes' is one line of options",
    "RF-3": "dead events: by hand, dropped by policy, patched by a job, or sent elsewhere",
    "RF-4": "a target that is down or rejects everything does not burn the backlog",
    # Ordering
    "OP-1": "one ordering_key: strictly in put order, one at a time, across relays, retries, expiries and crashes",
    "OP-2": "a waiting head holds its line; a dead one skips or blocks it, as the box is set",
    "OP-3": "cost does not grow with what waits behind a blocked key",
    "OP-4": "a replay joins the tail of its line; under block it returns to its own place",
    # Message states and uniqueness
    "MQ-1": "the six phases are visible wherever counts are shown",
    "MQ-2": "unique_key with ALL_LIVE: refused while any event with the key is live",
    "MQ-3": "unique_key with UNTOUCHED: refused while one is SCHEDULED or AVAILABLE, again after a retry delay",
    "MQ-4": "DEAD and PUBLISHED never hold a key; raise or get the holder; replay into a held key is refused; batches",
    "MQ-5": "sweep removes DEAD and PUBLISHED by age and count, bounded, dry-run; delete on success",
    # Replay and operations
    "RO-1": "inspect by id; list by state, type, key, error and time, paged; counts and ages by phase",
    "RO-2": "replay one, many or all, from DEAD and PUBLISHED; reset, delay, rate, dry-run; respects ordering",
    "RO-3": "by hand: reschedule, kill, release, drop, pause, resume; each recorded with who, when and why",
    "RO-4": "stuck detection; `redbox why ID`",
    "RO-5": "metrics, traces and structured logs",
    # Store-and-forward service
    "SF-1": "a client that posts an event gets its OK after it is persisted",
    "SF-2": "the forwarder delivers to HTTP services at least once",
    "SF-3": "one command starts it; kill -9 and a restart lose nothing",
    # Data pipeline
    "SP-1": "a box as a DataFrame",
    "SP-2": "a DataFrame into a box, idempotent",
    "SP-3": "a box as a stream: drain and follow",
    "SP-4": "a stream into a box",
    "SP-5": "archive",
    "SP-6": "replay from the archive",
    "SP-7": "patch",
    "SP-8": "report",
    "SP-9": "audit",
    "SP-10": "on a laptop and on a cluster, without a change of code",
    # Design
    "DC-1": "the layout of the repository",
    "DC-2": "few packages",
    "DC-3": "hashes, a sorted set by available_at, Lua claiming under a lease, fenced finalization",
    "DC-4": "await box.put(event); redbox relay; redbox dead list and replay; benchmarks",
}
