"""The diagnosis of a box and of the server that holds it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Final

from redbox import keys
from redbox.arguments import counted
from redbox.audit.box_audit import SAMPLE, Progress, audit_box, store_of
from redbox.audit.box_checks import SHOWN, check_bodies, check_box
from redbox.audit.findings import Finding, Severity, error, info, ok, warning
from redbox.audit.rules import BY_HAND, RULES
from redbox.audit.server_checks import KNOWN_BUGS_CHECK, Clock, check_beats, check_clock, check_room, check_server
from redbox.audit.snapshots import as_text
from redbox.box import Box
from redbox.box.reports import decode_stats
from redbox.errors import ForeignKey, NewerLayout, NotPermitted, RedboxError, StoreError
from redbox.store.scripts.registry import REGISTRY, commands
from redbox.store.server.permissions import ARGUMENTS
from redbox.store.store import Store

MEASURED: Final = 10  # events at each end of an index, whose memory is measured
WHOLE_EVENTS: Final = 20_000  # the largest box that is audited as a whole without `full`
WHOLE_KEYS: Final = 1_000_000  # and only if the database has no more keys, of any program: an audit scans them all
INDEX_BYTES: Final = 130  # of an id in a sorted set
_ORDER: Final = tuple(Severity)


async def diagnose(box: Box, *, full: bool = False, progress: Progress | None = None) -> list[Finding]:
    """Checks the server, the box, its relays and its events; the most serious come first. Changes nothing.

    `full` audits the whole box; without it, of a box with more than WHOLE_EVENTS events, the first and the last
    thousand events of each index. A check that the server or the permissions of the user do not allow is a finding too.
    Raises StoreUnavailable if the server cannot be reached.
    """
    findings = [finding async for finding in _findings(box, full, progress)]
    return sorted(findings, key=lambda finding: (_ORDER.index(finding.severity), finding.check == KNOWN_BUGS_CHECK))


async def quick_errors(box: Box) -> list[Finding]:
    """The errors that two round trips can find, for the start of a relay. Raises nothing that the store causes."""
    store = store_of(box)
    try:
        findings = [*check_server(await store.server_facts()), *check_box(await box.stats())]
    except RedboxError:
        return []
    expected = ("relays",)  # a relay that starts finds none running
    return [each for each in findings if each.severity is Severity.ERROR and each.check not in expected]


async def _findings(box: Box, full: bool, progress: Progress | None) -> AsyncIterator[Finding]:
    store = store_of(box)
    store.ensure_open()
    try:
        first = await _read_clock(store)
    except NotPermitted:
        first = None
        yield info(
            "clock", "the store's clock could not be read, so doctor could not check it",
            "the user of this connection may not run TIME", "grant +time",
        )  # fmt: skip
    facts, embedded = await store.server_facts(), store.where.startswith("embedded:")
    for finding in check_server(facts, embedded=embedded):
        yield finding
    for finding in check_room(facts, await _event_bytes(store), embedded=embedded):
        yield finding
    permissions = await _check_permissions(store)
    yield permissions
    try:
        reply = await store.stats()
    except NewerLayout as refusal:
        yield error("layout", str(refusal), "this redbox cannot read the box", "`pip install --upgrade redbox-outbox`")
        return
    except NotPermitted as refusal:
        remedy = permissions.remedy or str(refusal)
        yield error("permissions", "the box cannot be read by this user", "doctor can check nothing more", remedy)
        return
    except ForeignKey as refusal:
        yield error("keys", str(refusal), "the box cannot be read", "rename the key of the other program")
        for finding in await _audit(box, None, whole=full, progress=progress):
            yield finding
        return
    stats = decode_stats(box.name, reply)
    for finding in check_beats(reply.now, [beat.seen for beat in reply.relays]):
        yield finding
    blocked = [as_text(raw) for raw in (await store.index_ends("blocked", SHOWN))[:SHOWN]] if stats.blocked else []
    paused = [each.key for each in await store.paused_keys(SHOWN)] if stats.paused_keys else []
    for finding in check_box(stats, blocked, paused, replica=facts.is_replica):
        yield finding
    whole = full or (sum(stats.phases.values()) <= WHOLE_EVENTS and (facts.keys or 0) <= WHOLE_KEYS)
    for finding in await _audit(box, sum(stats.phases.values()), whole=whole, progress=progress):
        yield finding
    if first is not None:
        for finding in check_clock(_compare(first, await _read_clock(store))):
            yield finding


def _every_command() -> list[tuple[str, int]]:
    """The commands of all scripts, those that only read too."""
    names = {command for script in REGISTRY for command in commands(script)}
    return [(command, ARGUMENTS[command]) for command in sorted(names)]


async def _check_permissions(store: Store) -> Finding:
    """Whether every script can run to its end under this user."""
    if not (await store.exchanges.wire()).shebang:
        return ok("permissions", "a store in memory has no users")
    try:
        missing = await store.check_permissions(_every_command())
    except StoreError as refusal:
        return error("permissions", str(refusal), "the scripts of redbox cannot run", "docs/permissions.md")
    if not missing:
        return ok("permissions", "the user of this connection may run every script")
    granted = [f"+{each.lower()}" for each in sorted(missing) if not each.startswith(":")]
    pattern = [f"~{keys.prefix(store.box)}:*"] if len(granted) < len(missing) else []
    return warning(
        "permissions", "the user of this connection may not run every script",
        "a user that only puts, or only relays, needs less: docs/permissions.md",
        f"`redis-cli ACL SETUSER NAME {' '.join(granted + pattern)}`",
    )  # fmt: skip


async def _event_bytes(store: Store) -> int | None:
    """The memory that an event of this box takes, on average over some of them; None if it cannot be measured."""
    try:
        ids = {raw for index in keys.INDEXES for raw in await store.index_ends(index, MEASURED)}
        sizes = await store.memory_usage(sorted(ids))
    except StoreError:
        return None
    return sum(sizes) // len(sizes) + INDEX_BYTES if sizes else None


async def _audit(box: Box, total: int | None, *, whole: bool, progress: Progress | None) -> list[Finding]:
    """The findings of an audit. `total` is how many events the box has; None if they cannot be counted."""
    audit = audit_box(box, sample=None if whole else SAMPLE, progress=progress)
    first: dict[str, str] = {}
    try:
        async for problem in audit:
            first.setdefault(problem.rule, str(problem))
    except (ForeignKey, NotPermitted) as refusal:
        return [
            warning("audit", f"the box could not be audited: {refusal}", "problems may be hidden", "`redbox audit`")
        ]
    findings = [
        error(
            f"audit: {rule}", f"{counted(count, 'problem')}, such as {first[rule]}", f"the rule: {RULES[rule]}",
            "`redbox audit` lists them" + ("" if rule in BY_HAND else ", `redbox doctor --repair` mends them"),
        )
        for rule, count in audit.by_rule.most_common()
    ]  # fmt: skip
    findings += check_bodies(sorted(audit.without_body))
    if not whole:
        result = "other problems may be hidden" if audit.problems else "no problem found"
        of = "" if total is None else f" of {total:,}"
        findings.append(
            info(
                "audit", f"a sample was audited, {audit.events:,}{of} events; {result}",
                "a sample does not show events that are in no index", "`redbox doctor --full`, or `redbox audit`",
            )
        )  # fmt: skip
    elif not audit.problems:
        findings.append(ok("audit", f"no rule is broken; the whole box, {counted(audit.events, 'event')}, was checked"))
    return findings


class _Reading:
    """One reading of the store's clock, and of this machine's around it; in seconds."""

    def __init__(self, store: float, before: float, after: float, steady: float) -> None:
        self.store = store
        self.middle = (before + after) / 2
        self.unsure = (after - before) / 2
        self.steady = steady


async def _read_clock(store: Store) -> _Reading:
    before, steady = time.time(), time.monotonic()
    now = await store.time() / 1000
    return _Reading(now, before, time.time(), (steady + time.monotonic()) / 2)


def _compare(first: _Reading, last: _Reading) -> Clock:
    jumped = (last.store - first.store) - (last.steady - first.steady)
    return Clock(last.store - last.middle, last.unsure, jumped)
