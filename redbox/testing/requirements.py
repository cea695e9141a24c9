"""The requirements of redbox, line by line. A test names the lines that it proves: `@pytest.mark.req("PL-6")`.

A line without a test is not built yet; the table of `make conformance` shows it as open.
"""

from __future__ import annotations

from typing import Final

REQUIREMENTS: Final[dict[str, str]] = {
    # Event model
    "EM-1": (
        "event_id is unique and immutable, a UUIDv7 by default; putting an id that exists changes nothing and reports "
        "it"
    ),
    "EM-2": "event_type is a validated, immutable identifier: non-empty, bounded, printable, no spaces",
    "EM-3": (
        "payload is opaque: bytes are stored unchanged, any other value is encoded once at put; byte-identical ever "
        "after"
    ),
    "EM-4": "state is PENDING, CLAIMED, PUBLISHED or DEAD, and nothing else",
    "EM-5": "created_at is set by the store when the event is persisted, and never changes",
    "EM-6": "partition_key reaches the publisher and has no effect on order",
    "EM-7": "ordering_key puts events into a line (see OP)",
    "EM-8": "metadata is not delivered; it carries the trace context of the span that called put",
    "EM-9": "headers are delivered unchanged; reserved names, and those that HTTP sets itself, are refused at put",
    "EM-10": (
        "attempts is counted in the claim and never decreases; attempts that say nothing about the event are excused"
    ),
    "EM-11": "last_error is updated on every failure, bounded and readable",
    "EM-12": "no event is claimed before its available_at, given as a delay or a time",
    "EM-13": "claimed_at and claimed_by are set exactly while CLAIMED",
    "EM-14": "published_at is set exactly while PUBLISHED; the last 8 attempts are kept as history",
    "EM-15": "nothing changes the immutable fields",
    # Lifecycle
    "PL-1": "only the transitions of the state machine happen; the scripts refuse every other one with a reason",
    "PL-2": "claim returns only PENDING, available events and sets claimed_at, claimed_by and a lease",
    "PL-3": "success makes an event PUBLISHED with published_at",
    "PL-4": "failure or expiry makes an event PENDING: counted once, last_error, available_at, claim cleared",
    "PL-5": "an event is DEAD when a termination condition holds; it is never retried automatically",
    "PL-6": (
        "settling is fenced by (claimed_by, a claim number that never repeats); after its lease an unreaped claim "
        "still settles"
    ),
    "PL-7": "relays killed at any point, double claims, batches that fail in part: nothing is lost",
    "PL-8": "with many relays whose clocks disagree, only the store's clock decides",
    "PL-9": "PUBLISHED and DEAD events never change automatically",
    # Store contract
    "SC-1": "put returns only once the event is as durable as requested; relays see it as soon as the server has it",
    "SC-2": "claim never returns more than its limit; oldest available_at first",
    "SC-3": "two relays never hold the same event during its lease",
    "SC-4": "updates are atomic per event; hash and indexes always agree",
    "SC-5": "the store has no retry policy: delays and limits are arguments",
    "SC-6": "terminal events stay readable until retention removes them, and are never eligible",
    "SC-7": "expired claims become eligible again; each reap is bounded, and safe with any number of reapers",
    "SC-8": "reading never changes state",
    "SC-9": (
        "inside box.transaction() the event and the caller's own Redis writes share one atomic boundary; what Redis "
        "cannot roll back is reported as PartlyCommitted"
    ),
    # Delivery semantics
    "DS-1": (
        "delivery is at least once; the causes of duplicates are documented, with a consumer that deduplicates by "
        "event_id"
    ),
    "DS-2": "stronger guarantees state their conditions and limits, and a test proves each",
    # Publishers
    "PC-1": (
        "one attempt per call; a request lost with a kept connection may be sent once more in it; success only on the "
        "target's own acknowledgement"
    ),
    "PC-2": "the payload is delivered unmodified, with headers, event_id, event_type and partition_key",
    "PC-3": "publishers are safe under concurrent calls; a batch has an outcome for each event",
    "PC-4": "errors are classified: retry, retry after a delay, or never",
    # Retries and failures
    "RF-1": (
        "exponential, fixed or custom delay from now, with jitter; a retry blocks no relay; retries without a delay "
        "need a limit"
    ),
    "RF-2": "'3 attempts, every 10 minutes' is one line of options",
    "RF-3": "dead events are handled by hand, dropped by policy, patched by a job, or sent elsewhere",
    "RF-4": (
        "a target that is down or rejects everything does not use up the backlog; bad events do not delay good ones; "
        "relays do not probe their target in step"
    ),
    # Ordering
    "OP-1": (
        "events of one ordering_key: strictly in put order, one at a time, across relays, retries, expiries and crashes"
    ),
    "OP-2": "a head that waits for a retry holds up its line; a DEAD one is skipped or blocks it, as the box is set",
    "OP-3": "the cost of a claim does not grow with the events behind a blocked key",
    "OP-4": (
        "a replay joins the tail of its line; with dead_head=block it returns to its place, unless a later event was "
        "claimed"
    ),
    # Message states and uniqueness
    "MQ-1": "the six phases are visible wherever counts are shown, and add up to all events",
    "MQ-2": "unique_key with ALL_LIVE: refused while any event with the key is live",
    "MQ-3": "unique_key with UNTOUCHED: refused while one is SCHEDULED or AVAILABLE, and again after a retry delay",
    "MQ-4": (
        "DEAD and PUBLISHED never hold a key; a conflict raises or returns the holder; replay into a held key is "
        "refused; batches"
    ),
    "MQ-5": (
        "sweep removes DEAD and PUBLISHED events by age and count, in bounded steps, with a dry run; delete on success"
    ),
    "MQ-6": (
        "a put may replace the holder of its unique_key in one step if the holder was never claimed; else it is refused"
    ),
    # Replay and operations
    "RO-1": "inspect by id; list by state, type, key, error and time, paged; counts and ages by phase",
    "RO-2": "replay one, many or all, from DEAD and PUBLISHED; reset, delay, rate, dry run; respects ordering",
    "RO-3": "by hand: reschedule, kill, release, drop, pause, resume; each recorded with who, when and why",
    "RO-4": (
        "claims over-age, blocked keys, events that keep failing and the oldest waiting event are reported; "
        "`redbox why ID` says why an event is where it is and what happens next"
    ),
    "RO-5": "counts, failures, retries and latencies are exported as metrics and traces; logs are structured",
    "RO-6": "list and replay filter by created_at; the back-off of retries is visible in metrics",
    "RO-7": "operational events can be sent to a target of their own, on change of state only",
    # Limits
    "LM-1": "max_rate of a box: all relays together never claim faster, by the store's clock",
    "LM-2": "max_in_flight of a box: all relays together never hold more claims at once",
    "LM-3": (
        "pause until resumed, for a duration or until a time; resume at once or gradually; pause and resume one "
        "ordering_key"
    ),
    "LM-4": "limits cost nothing when unset, cannot be exceeded by a crash or a restart, and cannot jam a box",
    # Routing and fan-out
    "RT-1": "a box can be a target; the put into it is idempotent by event_id",
    "RT-2": (
        "routes map patterns of event types to destinations; an event without a match is DEAD with 'no route', or "
        "takes a default"
    ),
    "RT-3": "each destination has its own retries, breaker, limits and dead letters",
    # Consumer kit
    "CK-1": (
        "one call verifies a signed delivery in any framework: signature, age, and several secrets while one is rotated"
    ),
    "CK-2": (
        "one call deduplicates by event_id and fences by claim number, on Redis, with a memory of ids that is bounded; "
        "an effect on the same Redis is committed with the record"
    ),
    # Store-and-forward service
    "SF-1": "a client that posts an event gets an OK after the event is persisted",
    "SF-2": "the forwarder delivers to HTTP services at least once",
    "SF-3": "one command starts the service; kill -9 and a restart lose nothing",
    "SF-4": "ingest is idempotent, takes one event, a batch or CloudEvents, and pushes back before memory runs out",
    "SF-5": (
        "without tokens the service listens on loopback only; tokens have scopes; no secret appears in a log, an "
        "error or a page"
    ),
    "SF-6": "a dashboard shows within ten seconds whether events are flowing",
    # Data pipeline
    "SP-1": (
        "reading a box as a DataFrame returns each unchanged event once, with typed columns; state, type, time and "
        "columns are filtered before the data leaves Redis; nothing is changed"
    ),
    "SP-2": (
        "writing a DataFrame puts each row once, however often Spark runs a task; a row that cannot be put ends the "
        "job or is written to the rejects, and is named"
    ),
    "SP-3": (
        "a drain writes each event to a file sink exactly once, wherever a process is killed, and marks it PUBLISHED "
        "only after Spark has committed it; follow claims and changes nothing"
    ),
    "SP-4": "a stream written into a box puts each row once, also when an epoch is written again",
    "SP-5": (
        "an archive run removes an event from Redis only after its copy was read back and compared; killed at any "
        "point and run again, nothing is lost or duplicated"
    ),
    "SP-6": (
        "a replay from the archive returns the events that match an SQL condition to PENDING, each once however often "
        "it is run; one whose unique_key is held or that was superseded is refused"
    ),
    "SP-7": (
        "a patch puts a new event that names the DEAD one it supersedes; the payload of the DEAD one is unchanged, "
        "and a patch that is run again puts nothing twice"
    ),
    "SP-8": (
        "a report's figures over box and archive equal those computed by hand, and count an event in both once; the "
        "page loads nothing and escapes foreign text"
    ),
    "SP-9": "an audit reports the ids of every broken rule, finds none in a sound box, and changes nothing",
    "SP-10": "the same code runs on local[*] and on a standalone Spark cluster, and needs no pandas",
    # Design
    "DC-1": "pyproject.toml, README.md, cli.py, redbox/, lua/, tests/ and bench/ are at the top of the repository",
    "DC-2": (
        "the core depends on redis, msgspec, anyio, click and rich only; importing redbox imports no optional package"
    ),
    "DC-3": (
        "an event is a Redis hash in a sorted set by available_at; one Lua script moves it to CLAIMED with a lease as "
        "its score, and only the holder of the claim can settle it"
    ),
    "DC-4": (
        "await box.put(event), redbox relay, redbox dead list, redbox dead replay and make bench work as documented"
    ),
}
