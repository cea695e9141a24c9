"""What redbox must do, line by line. Tests name the lines they prove: `@pytest.mark.req("PL-6")`.

A line that no test names yet is planned work; the table shows it as open.
"""

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
    "EM-9": "headers are delivered as they are; reserved names, and those that HTTP sets itself, are refused at put",
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
    "SC-1": "put returns only once the event is as durable as asked for; relays see it as soon as the server has it",
    "SC-2": "claim never returns more than its limit; oldest available_at first",
    "SC-3": "two relays never hold one event while its lease lives",
    "SC-4": "updates are atomic per event; hash and indexes always agree",
    "SC-5": "the store has no retry policy: delays and limits come in as arguments",
    "SC-6": "terminal events stay readable until retention removes them, and are never eligible",
    "SC-7": "expired claims become eligible again; bounded, safe with any number of reapers",
    "SC-8": "reading never changes state",
    "SC-9": (
        "in box.transaction() the event and the caller's own writes are stored together or not at all; a failing "
        "command of the caller is reported as PartlyCommitted"
    ),
    # Delivery semantics
    "DS-1": "at least once; when duplicates happen is documented, with a consumer that dedups on event_id",
    "DS-2": "stronger guarantees state their conditions and limits, and a test shows each",
    # Publishers
    "PC-1": "one attempt per call; a request lost with a kept connection may be sent once more in it; success only on "
    "the target's own acknowledgement",
    "PC-2": "payload unmodified; headers, event_id, event_type and partition_key passed on",
    "PC-3": "safe under concurrent calls; a batch form with an outcome for each event",
    "PC-4": "errors are classified: retry, not before, or never",
    # Retries and failures
    "RF-1": "exponential, fixed or custom delay with jitter, after now; blocks no relay; no delay needs a limit",
    "RF-2": "'3 attempts, every 10 minutes' is one line of options",
    "RF-3": "dead events: by hand, dropped by policy, patched by a job, or sent elsewhere",
    "RF-4": "a target that is down or rejects everything does not burn the backlog; bad events do not delay good ones",
    # Ordering
    "OP-1": "one ordering_key: strictly in put order, one at a time, across relays, retries, expiries and crashes",
    "OP-2": "a waiting head holds its line; a dead one skips or blocks it, as the box is set",
    "OP-3": "cost does not grow with what waits behind a blocked key",
    "OP-4": "a replay joins the tail of its line; under block to its place, unless a later one was claimed",
    # Message states and uniqueness
    "MQ-1": "the six phases are visible wherever counts are shown, and add up to all events",
    "MQ-2": "unique_key with ALL_LIVE: refused while any event with the key is live",
    "MQ-3": "unique_key with UNTOUCHED: refused while one is SCHEDULED or AVAILABLE, again after a retry delay",
    "MQ-4": "DEAD and PUBLISHED never hold a key; raise or get the holder; replay into a held key is refused; batches",
    "MQ-5": "sweep removes DEAD and PUBLISHED by age and count, bounded, dry-run; delete on success",
    # Replay and operations
    "RO-1": "inspect by id; list by state, type, key, error and time, paged; counts and ages by phase",
    "RO-2": "replay one, many or all, from DEAD and PUBLISHED; reset, delay, rate, dry-run; respects ordering",
    "RO-3": "by hand: reschedule, kill, release, drop, pause, resume; each recorded with who, when and why",
    "RO-4": (
        "claims over-age, blocked keys, events that keep failing and the oldest waiting event are reported; "
        "`redbox why ID` says why an event is where it is and what happens next"
    ),
    "RO-5": "counts, failures, retries and latencies are exported as metrics and traces; logs are structured",
    "RO-6": "list and replay filter by created_at; metrics show retries by attempt and the delays scheduled",
    "RO-7": (
        "operational events (breaker, first death of a new kind of error, full box, backlog too old, pause) can be "
        "sent to a target of their own, once per change"
    ),
    # Limits
    "LM-1": "max_rate: all relays of a box together never claim faster, by the store's clock",
    "LM-2": "max_in_flight: all relays of a box together never hold more claims at once",
    "LM-3": "pause until resumed, for a duration or until a time; resume at once or as a ramp; also one ordering_key",
    "LM-4": (
        "limits cost nothing when unset, are not exceeded by a crash or a restart, and after a crash the box is at "
        "full rate no later than when its leases end"
    ),
    # Routing and fan-out
    "RT-1": (
        "a box is a target: a delivery repeated into it leaves one event, with id, type, payload, headers, keys "
        "and content type kept and the source box named in its metadata"
    ),
    "RT-2": (
        "an event goes to every destination whose pattern matches its type; without a match it is DEAD or takes a "
        "default"
    ),
    "RT-3": (
        "one destination that is down never delays another; a crash during a fan-out leaves the event once in the "
        "box of each destination"
    ),
    # Consumer kit
    "CK-1": "one call verifies a signed delivery: signature, age of the timestamp, several secrets at once",
    "CK-2": "one call tells a consumer whether an event_id is new, fenced by claim number, with a bounded memory",
    # Store-and-forward service
    "SF-1": "a client that posts an event gets its OK after it is persisted",
    "SF-2": "the forwarder delivers to HTTP services at least once",
    "SF-3": "one command starts it; kill -9 and a restart lose nothing",
    "SF-4": (
        "an event posted twice under one id is stored once; one event, a batch and CloudEvents are taken; a full "
        "box answers 429 or 503 with Retry-After"
    ),
    "SF-5": (
        "without tokens it listens on loopback only; a token does only what its scope allows; no secret appears in "
        "a log, an error or a page"
    ),
    "SF-6": "a page shows whether events flow, what fails and why, and its actions ask before they change anything",
    # Data pipeline
    "SP-1": (
        "reading a box as a DataFrame gives each unchanged event once, with typed columns, narrowed by state, "
        "type, time and columns before it leaves Redis, and changes nothing"
    ),
    "SP-2": (
        "writing a DataFrame puts each row once, however often Spark runs a task; a row that cannot be put ends "
        "the job or goes to the rejects, and is named"
    ),
    "SP-3": (
        "a drain gives each event to a file sink exactly once, wherever a process is killed, and marks it "
        "PUBLISHED only after Spark has committed it; follow claims and changes nothing"
    ),
    "SP-4": "a stream written into a box puts each row once, also when an epoch is written again",
    "SP-5": (
        "an archive run removes an event from Redis only after its copy was read back and compared; killed "
        "anywhere and run again, nothing is lost or there twice"
    ),
    "SP-6": (
        "a replay from the archive returns the events that meet an SQL condition to PENDING, each once however "
        "often it is run; one whose unique_key is held or that was superseded is refused"
    ),
    "SP-7": (
        "a patch puts a new event that names the dead one it supersedes; the payload of the dead one stays as it "
        "was, and a patch that is run again puts nothing twice"
    ),
    "SP-8": (
        "a report's figures over box and archive equal those worked out by hand, and count once what is in both; "
        "the page loads nothing and escapes foreign text"
    ),
    "SP-9": "an audit names the ids of every broken invariant, finds none in a sound box, and changes nothing",
    "SP-10": "the same code runs on local[*] and on a standalone Spark cluster, and needs no pandas",
    # Design
    "DC-1": "pyproject.toml, README.md, cli.py, redbox/, lua/, tests/ and bench/ are at the top of the repository",
    "DC-2": (
        "the core depends on redis, msgspec, anyio, click and rich only; importing redbox imports no optional package"
    ),
    "DC-3": (
        "an event is a Redis hash in a sorted set by available_at; one Lua script moves it to CLAIMED with a lease "
        "as its score, and settling is refused to all but the holder of the claim"
    ),
    "DC-4": (
        "await box.put(event), redbox relay, redbox dead list, redbox dead replay and make bench work as documented"
    ),
}
