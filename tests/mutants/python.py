"""Defects in the Python of relay, store and box, each with the tests that have to notice it.

Name few and fast tests, so that a mutant takes seconds. Where memory cannot tell, name tests with a real server.
"""

from __future__ import annotations

from tests.mutants.catalogue import Mutant

#: Of tests that run on every store, those in memory: enough for most defects, and faster.
IN_MEMORY = ("-k", "not embedded and not redis and not cluster")

ENGINE = ("tests/relay/test_engine.py", *IN_MEMORY)
ENDS = ("tests/relay/test_ends.py", *IN_MEMORY)
LEASES = ("tests/relay/test_leases.py", *IN_MEMORY)
PAUSES = ("redbox/testing/conformance/operations/test_pause.py",)
AUDIT_RULES = ("tests/unit/test_audit.py",)
IDLE = ("tests/relay/test_idle.py", *IN_MEMORY)
BREAKER_IN_RELAY = ("tests/relay/test_breaker_in_relay.py", *IN_MEMORY)
BAD_PUBLISHERS = ("tests/relay/test_bad_publishers.py", *IN_MEMORY)
SETTLER = ("tests/relay/test_settler.py",)
LOST_DATA = ("tests/relay/test_lost_data.py",)
CAPACITY = ("tests/relay/test_capacity.py",)
BREAKER = ("tests/unit/test_breaker.py",)
WHY = (
    "tests/unit/test_why.py", "tests/contract/operations/test_why.py", "tests/contract/operations/test_why_damage.py",
    "tests/contract/operations/test_why_facts.py", *IN_MEMORY,
)  # fmt: skip
HTTP_RESPONSES = ("tests/publishers/test_http_responses.py",)
POISON = ("tests/relay/test_poison.py", *IN_MEMORY)
BACKOFF = ("tests/unit/test_backoff.py",)
METRICS = ("tests/unit/test_metrics.py",)
ALERTS = ("tests/relay/test_alerts.py", *IN_MEMORY)
OTEL = ("tests/relay/test_otel.py",)
CONDITIONS = ("tests/unit/test_conditions.py",)
SERVICE_TOKENS = ("tests/service/test_tokens.py",)
SERVICE_ACCESS = ("tests/service/test_access.py",)
SERVICE_GATE = ("tests/service/test_gate.py",)
SERVICE_LIMITS = ("tests/service/test_limits.py",)
ADDRESSES = ("tests/publishers/test_addresses.py",)
EXPORTER = ("tests/unit/test_exporter.py",)
EXACT_TIMES = ("tests/unit/test_exact_times.py",)
RECEIPTS = ("tests/unit/test_receipts.py",)
PROBES = ("tests/unit/test_durability.py",)
EVENTS = (
    "tests/contract/events/test_identity.py",
    "tests/contract/events/test_contents.py",
    "tests/contract/events/test_fields.py",
    "tests/contract/events/test_attempts.py",
    "tests/contract/events/test_history.py",
    "tests/contract/events/test_available_at.py",
    *IN_MEMORY,
)
OPERATIONS = (
    "tests/contract/operations/test_listing.py",
    "tests/contract/operations/test_replay.py",
    "tests/contract/operations/test_actions.py",
    "tests/contract/operations/test_log.py",
    *IN_MEMORY,
)
SEARCH = ("tests/contract/operations/test_search.py", "-k", "not embedded and not redis and not cluster")
DEAD_LETTERS = ("tests/contract/operations/test_dead_letters.py", *IN_MEMORY)
FINGERPRINTS = ("tests/unit/test_fingerprints.py",)
PACE = ("tests/unit/test_pace.py",)
EXPORT_FILE = ("tests/unit/test_export_file.py",)
UNIQUENESS = (
    "tests/contract/states/test_phases.py",
    "tests/contract/states/test_unique_keys.py",
    "tests/contract/states/test_full_box.py",
    "tests/contract/states/test_retention.py",
    *IN_MEMORY,
)
STORE = (
    "tests/contract/store/test_put.py",
    "tests/contract/store/test_claim.py",
    "tests/contract/store/test_settle.py",
    "tests/contract/store/test_transactions.py",
    "tests/contract/store/test_reap.py",
    "tests/contract/store/test_reading.py",
    *IN_MEMORY,
)
DAMAGE = ("tests/contract/test_damage.py", *IN_MEMORY)
STEPS = ("tests/unit/test_steps.py",)
COALESCER = ("tests/integration/test_coalescer.py", *IN_MEMORY)
# With real servers:
DURABILITY = ("tests/integration/test_durability.py",)
FAULTS = "tests/integration/test_server_faults.py"
MULTIPLEXER = ("tests/integration/test_multiplexer.py",)
TRANSACTION = ("tests/integration/test_transaction.py",)
WAITING = ("tests/relay/test_waiting.py", "-k", "not cluster")
CLUSTER = "tests/integration/test_cluster.py"
PAUSED_WRITES = ("tests/relay/test_paused_writes.py", "-k", "stopping")
STORE_ERRORS = ("tests/unit/test_store_errors.py",)
ERROR_REPLIES = ("tests/relay/test_error_replies.py", "-k", "not_repeated")
LOOPS = ("tests/integration/test_loops.py", "-k", "memory")
FROZEN = ("tests/integration/test_frozen_server.py",)
HARD_CASES = "tests/integration/test_hard_cases.py"
HTTP = "tests/publishers/test_http.py"
RESPONSES = "tests/publishers/test_http_responses.py"
CONNECTIONS = "tests/publishers/test_connections.py"
RESOURCES = "tests/publishers/test_http_resources.py"
REDACTION = "tests/publishers/test_redaction.py"
FIRST_REWRITE = ("tests/integration/test_first_rewrite.py",)
FILE_MODES = "tests/pipeline/test_permissions.py"
CONDITION = "tests/pipeline/test_condition.py"
OUTAGE = "tests/pipeline/test_outage.py"
CONFIG = "tests/cli/test_config.py"
RELAY_COMMAND = "tests/cli/test_relay.py"
PRIVATE = "tests/integration/test_private_directory.py"

TERMINAL = ("tests/cli/test_process.py", "-k", "control_characters")
NO_SECRET = ("tests/unit/test_no_secret_is_repeated.py",)
PERMISSIONS = ("tests/integration/test_permissions.py", "-k", "redis")

PYTHON_MUTANTS = [
    # what reaches a terminal, and who keeps others out
    Mutant("control characters in JSON reach a terminal", "redbox/cli/output.py", "click.echo(escape_json(line) if stream.isatty() else line, err=err)", "click.echo(line, err=err)", TERMINAL),
    Mutant("a traceback reaches a terminal unescaped", "redbox/cli/app.py", 'printable("".join(traceback.format_exception(error)), keep="\\n")', '"".join(traceback.format_exception(error))', TERMINAL),
    Mutant("events reach a terminal unescaped", "redbox/publishers/stdout.py", "if os.isatty(descriptor):", "if False:", TERMINAL),
    Mutant("silent clients keep others from the metrics", "redbox/service/connections.py", "found = self.pool.evict(Phase.IDLE, Phase.HEAD, Phase.BODY)", "found = False", METRICS),
    Mutant("the client that was idle for the shortest time gives way", "redbox/service/connections.py", "min(found, key=", "max(found, key=", METRICS),
    Mutant("one box that is not permitted hides the others", "redbox/cli/stats.py", "    except NotPermitted as error:\n        return str(error)\n", "", PERMISSIONS),
    # URLs that may hold a password
    Mutant("a parser's words about a URL are repeated", "redbox/store/connect.py", "raise problem(_WHAT, option_problem(error)) from None", "raise problem(_WHAT, str(error)) from None", NO_SECRET),
    Mutant("an error about a URL keeps its cause", "redbox/store/connect.py", "raise problem(_WHAT, option_problem(error)) from None", "raise problem(_WHAT, option_problem(error)) from error", NO_SECRET),
    Mutant("a path may hold a login", "redbox/urls.py", '"@" in parts.path or ', "", NO_SECRET),
    Mutant("a directory may hold a login", "redbox/urls.py", "if _NOT_A_NAME.search(name):", "if False:", NO_SECRET),
    Mutant("an unknown command is reported with its arguments", "redbox/arguments.py", "            each.args = (message,)\n", "            pass\n", NO_SECRET),
    Mutant("the address of a data source is shown as it is", "redbox/pipeline/source/options.py", "connect.describe(self.url)!r", "self.url!r", NO_SECRET),
    Mutant("a command is missing from the documented permissions", "tests/roles.py", '(*_SENDING, "BLPOP", "HGETALL"),', '(*_SENDING, "HGETALL"),', ("tests/unit/test_permissions.py",)),
    # header names
    Mutant("a reserved header passes with an underscore", "redbox/events.py", 'return name.lower().replace("_", "-")', "return name.lower()", ("tests/unit/test_events.py",)),
    Mutant("a reserved header passes in capitals", "redbox/events.py", 'return name.lower().replace("_", "-")', 'return name.replace("_", "-")', ("tests/unit/test_events.py",)),
    # permissions
    Mutant("permissions are not looked at", "redbox/store/script_runner.py", "if self._permissions.unsure_of(name) and wire.shebang:", "if False:", PERMISSIONS),
    Mutant("a claim is made that cannot be settled", "redbox/store/permissions.py", "return (name, *SETTLING) if", "return (name,) if", PERMISSIONS),
    Mutant("a permission that was taken away is not asked for again", "redbox/store/script_runner.py", "NotPermitted):\n            self._permissions = Permissions()", "NotPermitted):\n            pass", PERMISSIONS),
    Mutant("permissions are asked for by every caller", "redbox/store/permissions.py", "if not self.unsure_of(name):", "if False:", PERMISSIONS),
    # the outcome of an event
    Mutant("a target's wish to wait is ignored", "redbox/relay/judge.py", "return _bounded(asked)", "return 0.0", ENGINE),
    Mutant("the Retry-After of a target that is down is ignored", "redbox/relay/judge.py", "asked = _asked(error) if isinstance(error, RetryLater | Unavailable) else None", "asked = _asked(error) if isinstance(error, RetryLater) else None", ENGINE),
    Mutant("one attempt more than allowed", "redbox/relay/judge.py", "held.claim.failures + 1 >= self._policy.attempts", "held.claim.failures >= self._policy.attempts", ENGINE),
    Mutant("an event that is too old is published", "redbox/relay/judge.py", "if limit is not None and age > limit * 1000:", "if False:", ENGINE),
    Mutant("an exhausted event is published", "redbox/relay/judge.py", "if claim.exhausted:", "if False:", ENGINE),
    Mutant("failures count while the breaker is open", "redbox/relay/judge.py", "self._retry(held, error, excuse=True)  # the target", "self._retry(held, error, excuse=False)  # the target", BREAKER_IN_RELAY),
    Mutant("a rejection is final at once", "redbox/relay/judge.py", "elif self._breaker.circuit is Circuit.PROBING or (self._is_final(verdict) and isinstance(error, _DOUBTFUL)):", "elif self._breaker.circuit is Circuit.PROBING:", BREAKER_IN_RELAY),
    Mutant("a target that is down uses up attempts", "redbox/relay/judge.py", "            return self._acknowledged_at < held.started_at", "            return False", BREAKER_IN_RELAY),
    Mutant("an event that makes its target fall over never dies", "redbox/relay/judge.py", "            return self._acknowledged_at < held.started_at", "            return True", BREAKER_IN_RELAY),
    Mutant("a success before the attempt speaks against the event", "redbox/relay/judge.py", "            return self._acknowledged_at < held.started_at", "            return self._acknowledged_at < held.claimed_at", POISON),
    Mutant("who is to blame is settled when the verdict falls", "redbox/relay/judge.py", "            self._retry(verdict.held, verdict.error, excuse=verdict.excuse)", "            self._retry(verdict.held, verdict.error, excuse=self._is_target_to_blame(verdict.held, verdict.error))", POISON),
    Mutant("the memory of blame outlives a delivery", "redbox/relay/judge.py", "            self._blamed.pop(held.claim.event_id, None)\n        self._acknowledged_at", "            pass\n        self._acknowledged_at", POISON),
    Mutant("a dead-letter target that is down is asked all the time", "redbox/relay/judge.py", "delay = max(least, self._delay(held.claim, error))", "delay = self._delay(held.claim, error)", POISON),
    Mutant("a hanging dead-letter target takes every worker", "redbox/relay/dead_letters.py", "min(capacity(publisher, workers).calls, max(1, workers // 2))", "capacity(publisher, workers).calls", POISON),
    Mutant("a drain waits for the probe of an open breaker", "redbox/relay/dispatcher.py", "if drain and not len(found) and found.more_in != 0 and not found.limited and not breaker.doubting:", "if False:", POISON),
    Mutant("a suspect decides over rejections held back", "redbox/relay/dispatcher.py", "await self._completion.until_at_most(1, more_to_try=True)", "await self._completion.until_at_most(1)", BREAKER_IN_RELAY),
    Mutant("puts behind a silent store wait in turn", "redbox/box/coalescer.py", "self._fail_queue(error)", "pass", FROZEN),
    Mutant("an attempt that was interrupted counts", "redbox/relay/judge.py", "self._settler.retry(held, 0.0, error, excuse=True)", "self._settler.retry(held, 0.0, error, excuse=False)", ENDS),
    Mutant("the dead-letter target is passed over", "redbox/relay/judge.py", "if self._has_dead_letter_target:", "if False:", BAD_PUBLISHERS),
    Mutant("an event dies although the dead-letter target failed", "redbox/relay/judge.py", "self._retry(held, failure, excuse=False, least=DEAD_LETTER_DELAY)", "self._settler.kill(held, text)", BAD_PUBLISHERS),
    Mutant("the backoff counts a failure twice", "redbox/relay/judge.py", "else claim.failures + 1", "else claim.failures + 2", ENGINE),
    Mutant("a backoff function that fails means at once", "redbox/relay/judge.py", "delay = BROKEN_BACKOFF_DELAY", "delay = 0.0", BAD_PUBLISHERS),
    Mutant("stopping kills the events whose rejection is held back", "redbox/relay/engine.py", "        self.workers.interrupt()\n        self._judge.excuse_pending()\n", "        self.workers.interrupt()\n        self._judge.decide_pending()\n", BREAKER_IN_RELAY),
    Mutant("a pause kills the events whose rejection is held back", "redbox/relay/judge.py", "if more_to_try or self._state.stopping or self._state.paused or workers.all_stuck:", "if more_to_try or self._state.stopping or workers.all_stuck:", BREAKER_IN_RELAY),
    Mutant("a success leaves verdicts undecided", "redbox/relay/judge.py", "            if self._pending:\n                self.decide_pending()\n", "", BREAKER_IN_RELAY),
    # the breaker
    Mutant("opens one time too late when the target is down", "redbox/relay/breaker.py", "if self._down >= unavailable:", "if self._down > unavailable:", BREAKER),
    Mutant("opens one failure too late", "redbox/relay/breaker.py", "if len(self._failed) >= failures:", "if len(self._failed) > failures:", BREAKER),
    Mutant("opens one rejection too late", "redbox/relay/breaker.py", "if self._rejected[kind] >= rejections:", "if self._rejected[kind] > rejections:", BREAKER),
    Mutant("rejections of all kinds are one kind", "redbox/relay/breaker.py", "if self._rejected[kind] >= rejections:", "if self._rejected.total() >= rejections:", BREAKER),
    Mutant("one event opens the breaker by itself", "redbox/relay/breaker.py", "self._failed.add(event_id)", 'self._failed.add(f"{event_id}{len(self._failed)}")', BREAKER),
    Mutant("a success forgets nothing", "redbox/relay/breaker.py", "        if self._failing:\n            self._forget()\n", "", BREAKER),
    Mutant("HTTP 401 is about the event", "redbox/publishers/http_responses.py", "blames_target=status in _BLAMES_TARGET", "blames_target=False", HTTP_RESPONSES),
    Mutant("a type that keeps failing is not isolated", "redbox/relay/breaker.py", "self._isolated |= {pair for pair in self._failing if pair[1] != DOWN}", "pass", BREAKER),
    Mutant("an isolated type stays so for ever", "redbox/relay/breaker.py", "if self._clock() - self._succeeded_at <= self._longest:", "if True:", BREAKER),
    Mutant("a type is isolated for every reason", "redbox/relay/breaker.py", "if (event_type, kind) in self._isolated:", "if event_type in self.isolated:", BREAKER),
    Mutant("a doubt has no end", "redbox/relay/breaker.py", "self._tried < MOST_PROBED and self._patience()", "self._patience()", BREAKER),
    Mutant("a doubt may take for ever", "redbox/relay/breaker.py", "self._tried < MOST_PROBED and self._patience()", "self._tried < MOST_PROBED", BREAKER),
    Mutant("a sample that was not tried opens the breaker", "redbox/relay/breaker.py", "if size and not self._outcomes and not hangs:", "if False:", BREAKER),
    Mutant("a sample that hangs is followed by others", "redbox/relay/breaker.py", "if size and not self._outcomes and not hangs:", "if size and not self._outcomes:", POISON),
    Mutant("a probe that fills the buffer never ends", "redbox/relay/dispatcher.py", "breaker.circuit is Circuit.PROBING and self._prober.can_end(breaker):", "breaker.doubting:", POISON),
    Mutant("every sample is spread", "redbox/relay/breaker.py", "return self._sample == SAMPLE", "return True", BREAKER),
    Mutant("the pause between probes stays the same", "redbox/relay/breaker.py", "self._pause = min(2 * self._pause, self._longest)", "pass", BREAKER),
    Mutant("the pause between probes has no bound", "redbox/relay/breaker.py", "min(2 * self._pause, self._longest)", "2 * self._pause", BREAKER),
    Mutant("the pauses of all relays are equal", "redbox/relay/breaker.py", "self._pause * (1 - JITTER * self._random())", "self._pause", BREAKER),
    Mutant("a pause may exceed the longest", "redbox/relay/breaker.py", "(1 - JITTER * self._random())", "(1 + JITTER * self._random())", BREAKER),
    Mutant("the pause stays long after the breaker closed", "redbox/relay/breaker.py", '"", self._first_pause', '"", self._pause', BREAKER),
    Mutant("a late failure begins the pause anew", "redbox/relay/breaker.py", "if self.circuit is Circuit.OPEN:  # was", "if False:  # was", BREAKER),
    # settling
    Mutant("a claim that was gone counts as settled", "redbox/relay/settler.py", "strict=True) if done]", "strict=True)]", SETTLER),
    Mutant("settling goes on after the lease has ended", "redbox/relay/settler.py", "if loop.time() >= max(held.deadline for held in batch):", "if False:", SETTLER),
    Mutant("settling is not repeated", "redbox/relay/settler.py", "if loop.time() >= max(held.deadline for held in batch):", "if True:", SETTLER),
    Mutant("published events are kept that are to be removed", "redbox/relay/settler.py", "delete=self._delete)", "delete=False)", ENGINE),
    Mutant("dead events are kept that are to be removed", "redbox/relay/settler.py", "drop=self._drop", "drop=False", ENGINE),
    Mutant("one delay for all retries of a batch", "redbox/relay/settler.py", "delay=[how.delay for _, how in batch]", "delay=batch[0][1].delay", SETTLER),
    Mutant("one excuse for all retries of a batch", "redbox/relay/settler.py", "excuse=[how.excuse for _, how in batch]", "excuse=batch[0][1].excuse", SETTLER),
    Mutant("one reason for all deaths of a batch", "redbox/relay/settler.py", "reason=[reason for _, reason in batch]", "reason=batch[0][1]", SETTLER),
    Mutant("a settlement without its durability counts as not made", "redbox/relay/settler.py", "                settled = batch\n", "                settled = []\n", SETTLER),
    # claiming, holding, ending
    Mutant("the buffer is not bounded in bytes", "redbox/relay/demand.py", "if self._ledger.bytes >= self._policy.buffer_bytes:", "if False:", ENGINE),
    Mutant("a claim brings more bytes than there is room for", "redbox/relay/claimer.py", "max_bytes=max(1, min(BATCH_BYTES, self._policy.buffer_bytes - holding.bytes))", "max_bytes=BATCH_BYTES", ENGINE),
    Mutant("the store does not learn what the relay holds", "redbox/relay/claimer.py", "holding=holding.claims,", "holding=0,", LEASES),
    Mutant("the store does not learn the limit of attempts", "redbox/relay/claimer.py", "attempts=self._policy.attempts", "attempts=None", ENGINE),
    Mutant("leases are not renewed", "redbox/relay/ledger.py", "await self._renew(ageing[first : first + BATCH_COUNT])", "pass", LEASES),
    Mutant("a renewed lease keeps its old end", "redbox/relay/ledger.py", "            if ours:\n                held.deadline = asked_at + self._lease", "            if ours:\n                pass", LEASES),
    Mutant("a lost lease is not noticed", "redbox/relay/ledger.py", "                held.lost = True\n", "                pass\n", LEASES),
    Mutant("published after its lease may have ended", "redbox/relay/workers.py", "if held.lost or moment >= held.deadline:\n                self._settler", "if held.lost:\n                self._settler", LEASES),
    Mutant("a publisher is abandoned before it was cancelled", "redbox/relay/workers.py", "if was_cancelled and now()", "if now()", ("tests/relay/test_bad_publishers.py", "-k", "lags")),
    Mutant("published although its lease was lost", "redbox/relay/workers.py", "if held.lost or moment >= held.deadline:\n                self._settler", "if moment >= held.deadline:\n                self._settler", LEASES),
    Mutant("a suspect is published in company", "redbox/relay/dispatcher.py", "        await self._completion.until_at_most(1, more_to_try=True)\n", "", LEASES),
    Mutant("more is claimed while a suspect is published", "redbox/relay/dispatcher.py", "        self._workers.buffer.add([held])\n        await self._completion.until_tried()\n", "        self._workers.buffer.add([held])\n", LEASES),
    Mutant("claims that arrive when the breaker is open are published", "redbox/relay/prober.py", "return self.breaker is None or (probe and not self.is_open)", "return True", BREAKER_IN_RELAY),
    Mutant("a sample is claimed like other events", "redbox/relay/dispatcher.py", "self._claimer.claim(size, self._ledger.holding(), probe=True, spread=breaker.first_sample)", "self._claimer.claim(size, self._ledger.holding(), spread=breaker.first_sample)", POISON),
    Mutant("a sample is not spread", "redbox/relay/claimer.py", "spread=spread,\n", "spread=False,\n", POISON),
    Mutant("claims that were given back are not sampled", "redbox/relay/prober.py", "(doubted and self._others_held and not hangs)", "False", POISON),
    Mutant("a probe that fails kills every rejected event", "redbox/relay/judge.py", "        self.excuse_pending()\n        self._release_buffered()\n", "        self.decide_pending()\n        self._release_buffered()\n", POISON),
    Mutant("a probe that fails kills no rejected event", "redbox/relay/judge.py", "            if rejected:\n", "            if False:\n", POISON),
    Mutant("the end of an outage kills the events that were refused before", "redbox/relay/judge.py", "            self.excuse_pending()  # the target may", "            pass  # the target may", POISON),
    Mutant("a rejection that blames the target is about the event", "redbox/relay/judge.py", "        if not error_blames_target(error):\n            return False\n", "        return False\n", POISON),
    Mutant("a rejection that blames the target never counts", "redbox/relay/judge.py", "return self._acknowledged_at < first", "return True", POISON),
    Mutant("events not begun stay claimed when the relay stops", "redbox/relay/engine.py", "        self._settler.release_all(self._buffer.withdraw())\n", "", ENDS),
    Mutant("a drain waits for ever for a store that is away", "redbox/relay/dispatcher.py", "if never_started or (drain and delay > DRAIN_PATIENCE):", "if never_started:", ENDS),
    Mutant("a drain forgets the claims of dead relays", "redbox/relay/relay.py", "            await Reaper(self._box).run_once()\n", "", ENDS),
    Mutant("a relay sleeps past the end of a pause", "redbox/relay/dispatcher.py", "await self._wait_for_events(pause.ends_in)", "await self._wait_for_events(None)", PAUSES),
    Mutant("a pause that replaces another is not logged", "redbox/relay/dispatcher.py", "if pause is not None and pause.message != self._logged_pause:", "if pause is not None and not self._state.paused:", IDLE),
    Mutant("a pause is logged again and again", "redbox/relay/dispatcher.py", "if pause is not None and pause.message != self._logged_pause:", "if pause is not None:", IDLE),
    Mutant("a drain ends under a ramp", "redbox/relay/dispatcher.py", "        if found.limited:\n", "        if False:\n", IDLE),
    Mutant("under a ramp events die for want of others", "redbox/relay/dispatcher.py", "        if not limited:\n            self._judge", "        if True:\n            self._judge", BREAKER_IN_RELAY),
    Mutant("stats show a pause that is over", "redbox/box/reports.py", "if until and int(until) <= now:", "if False:", PAUSES),
    Mutant("a pause without an end cannot be read", "redbox/box/reports.py", "([0-9]{0,15})", "([0-9]{1,15})", PAUSES),
    Mutant("a pause may last no time", "redbox/box/operate.py", "    if milliseconds < 1:\n", "    if False:\n", PAUSES),
    Mutant("an audit accepts times after the year 9999", "redbox/audit/rules.py", "elif name in TIMES and int(fields[name]) > LAST_MS:", "elif False:", AUDIT_RULES),
    Mutant("an audit accepts a waiting head of a key that is not paused", "redbox/audit/rules.py", "and event.line_head == event.event_id and not event.key_paused:", "and False:", AUDIT_RULES),
    Mutant("an audit reports the waiting head of a paused key", "redbox/audit/rules.py", "and event.line_head == event.event_id and not event.key_paused:", "and event.line_head == event.event_id:", AUDIT_RULES),
    Mutant("an audit accepts a claimable head of a paused key", "redbox/audit/rules.py", 'elif in_line and event.key_paused and index != "claimed":', "elif False:", AUDIT_RULES),
    Mutant("a drain of a paused box is a success", "redbox/relay/engine.py", "                    refused = error  #", "                    pass  #", ENDS),
    Mutant("outcomes that do not fit are believed", "redbox/relay/workers.py", "if len(outcomes) != len(chunk):", "if False:", BAD_PUBLISHERS),
    Mutant("the dead-letter target is not told why", "redbox/relay/dead_letters.py", "{**event.headers, REASON_HEADER: reason}", "event.headers", BAD_PUBLISHERS),
    Mutant("a dead-letter target that rejects keeps the event alive", "redbox/relay/workers.py", "                self._judge.dead_letter_rejected(held, error)\n", "                self._judge.dead_letter_failed(held, error)\n", BAD_PUBLISHERS),
    Mutant("claims of one number are one", "redbox/relay/ledger.py", "            self._helds.add(held)\n", "            self._helds = {each for each in self._helds if each.claim.number != held.claim.number} | {held}\n", LOST_DATA),
    Mutant("more events published at once than the publisher has threads", "redbox/relay/capacity.py", "min(concurrency, whole_number(f\"{kind}.at_once\", publisher.at_once(concurrency)))", "concurrency", CAPACITY),
    Mutant("calls of many events wait for each other", "redbox/relay/capacity.py", "if publisher.calls_at_once is not None:", "if False:", CAPACITY),
    Mutant("a worker goes on while its thread hangs", "redbox/relay/workers.py", "                await self._wait_for_unfinished(slot, task)\n", "                slot.cut_off = False\n", CAPACITY),
    Mutant("events are kept when all threads hang", "redbox/relay/workers.py", "            self._settler.release_all(self.buffer.withdraw())  #", "            pass  #", CAPACITY),
    # waiting for events
    Mutant("hints are ignored", "redbox/store/store.py", '("BLPOP", keys.wake(self.box), keys.wait(', '("BLPOP", keys.wait(self.box, wait.name), keys.wait(', WAITING),
    Mutant("a wait cannot be ended early", "redbox/store/store.py", "keys.wake(self.box), keys.wait(self.box, wait.name), seconds", "keys.wake(self.box), seconds", WAITING),
    Mutant("a script flushed during a wait is an error", "redbox/store/store.py", '            reply = await self.scripts.run("claim", arguments)\n', "            pass\n", WAITING),
    Mutant("a wait does not end when an event falls due", "redbox/relay/claimer.py", "await self.wait_for_reply(due_in)", "await self.wait_for_reply(None)", WAITING),
    Mutant("a wait uses up the leases that it brings", "redbox/relay/claimer.py", "longest=min(self._policy.poll, self._policy.lease * WAIT_SHARE)", "longest=self._policy.poll", WAITING),
    Mutant("waiting counts as publishing", "redbox/relay/claimer.py", "claimed_at = self._called_at if self._wait is None else", "claimed_at = self._called_at if True else", WAITING),
    # services
    Mutant("the reaper stops after one step", "redbox/relay/services.py", "if len(ids) < BATCH_COUNT:", "if True:", IDLE),
    Mutant("a service ends when the store is away", "redbox/relay/services.py", '            digest.store_failed(name, f"{name} got no answer from the store", error)\n', "            raise\n", IDLE),
    Mutant("a relay never leaves the list", "redbox/relay/services.py", "fresh=0, leaving=True)", "fresh=0)", IDLE),
    Mutant("a namesake is announced again and again", "redbox/relay/services.py", "if other and not self._warned:", "if other:", IDLE),
    Mutant("a published event counts as undelivered", "redbox/relay/judge.py", "            self._tally.undelivered.remove(held.claim.event_id)\n        if self._blamed", "            pass\n        if self._blamed", ("tests/cli/test_relay.py", "-k", "once_succeeds")),
    Mutant("a dead event counts as undelivered", "redbox/relay/judge.py", "        self._tally.undelivered.remove(held.claim.event_id)\n        self._settler.kill", "        self._settler.kill", ("tests/cli/test_relay.py", "-k", "once_succeeds")),
    Mutant("a failed event of a drain is forgotten", "redbox/relay/judge.py", "if self._state.draining:\n            self._tally", "if False:\n            self._tally", ("tests/cli/test_relay.py", "-k", "once_fails")),
    Mutant("all undelivered events are remembered", "redbox/relay/report.py", "if len(self._ids) < MOST_UNDELIVERED:", "if True:", ("tests/unit/test_undelivered.py",)),
    Mutant("every delivery takes no time", "redbox/relay/report.py", "self.counts[bisect_left(BUCKETS, seconds)] += 1", "self.counts[0] += 1", METRICS),
    Mutant("latency leaves out the time before the claim", "redbox/relay/report.py", "max(0, held.claim.claimed_ms - held.claim.due_ms) / 1000 + held_for", "held_for", METRICS),
    # backoff
    Mutant("the first retry waits twice the base", "redbox/backoff.py", "2.0 ** min(attempts - 1, 64)", "2.0 ** min(attempts, 64)", BACKOFF),
    Mutant("the backoff has no cap", "redbox/backoff.py", "min(longest, first * 2.0", "max(first, first * 2.0", BACKOFF),
    Mutant("no jitter", "redbox/backoff.py", "random.uniform(0, most) if jitter else most", "most", BACKOFF),
    # what is stored
    Mutant("headers are not stored", "redbox/store/codec.py", "dict(sorted(event.headers.items())) if event.headers else {}", "{}", EVENTS),
    Mutant("the partition key is not stored", "redbox/store/codec.py", "            event.partition_key,\n", "            None,\n", EVENTS),
    Mutant("metadata is not stored", "redbox/store/codec.py", "own_metadata, scope = dict(metadata),", "own_metadata, scope = dict[str, str](),", EVENTS),
    Mutant("the content type is not stored", "redbox/store/codec.py", "            _TYPE_NUMBERS.get(content_type, content_type),\n", "            0,\n", EVENTS),
    Mutant("metadata makes another event", "redbox/store/codec.py", "return EncodedEvent(event.event_id, event.event_type, body, len(body) - end, _options(event))", "return EncodedEvent(event.event_id, event.event_type, body, len(body), _options(event))", EVENTS),
    Mutant("a delay is lost on its way", "redbox/store/codec.py", "available = f\"+{duration_ms(event.delay, 'delay')}\"", 'available = ""', EVENTS),
    Mutant("an event is due a moment later", "redbox/store/codec.py", "    if available_at <= now:\n        return Phase.AVAILABLE", "    if available_at < now:\n        return Phase.AVAILABLE", EXACT_TIMES),
    Mutant("what a newer version wrote is read all the same", "redbox/store/codec.py", "if version > BODY_VERSION or (", "if (", (FAULTS, "-k", "newer_redbox")),
    Mutant("a payload over the limit is taken", "redbox/store/codec.py", "if len(payload) > max_payload:", "if False:", EVENTS),
    Mutant("a put that found its event says that it created it", "redbox/box/receipts.py", "return Receipt(event.event_id, False, level.name)", "return Receipt(event.event_id, True, level.name)", EVENTS),
    Mutant("a batch is not bounded in bytes", "redbox/box/receipts.py", " or size + length > STEP_BYTES", "", RECEIPTS),
    Mutant("who holds the unique key is not reported", "redbox/box/receipts.py", "holder = refusal.holder if isinstance(refusal, Conflict) else None", "holder = None", UNIQUENESS),
    # settling through the box
    Mutant("settled for several relays, answered in another order", "redbox/box/claims.py", "return [results[position] for position in range(len(held))]", "return list(results.values())", STORE),
    Mutant("a renewal answers for its neighbour", "redbox/store/store.py", "            _, *words = await self.scripts.run(\"renew\"", "            *words, _ = await self.scripts.run(\"renew\"", LEASES),
    Mutant("a status is a number like others", "redbox/fingerprints.py", 'rf"{_KEPT}\\1"),', 'r"\\1"),', FINGERPRINTS),
    Mutant("a fingerprint depends on text that a history does not hold", "redbox/fingerprints.py", ".encode(errors=\"replace\")[:FINGERPRINTED]", ".encode(errors=\"replace\")", FINGERPRINTS),
    Mutant("the number of groups is not bounded", "redbox/box/error_groups.py", "elif len(self._groups) < MOST_GROUPS:", "elif True:", DEAD_LETTERS),
    Mutant("grouping does not end while events die", "redbox/box/error_groups.py", "selection = await up_to_now(store, selection)", "pass", DEAD_LETTERS),
    Mutant("an event that left its group is listed", "redbox/box/inspect.py", "return same_state and same_group and", "return", DEAD_LETTERS),
    Mutant("a replay by group replays all", "redbox/box/inspect.py", "if group is None or in_group(each.last_error, group)]", "]", DEAD_LETTERS),
    Mutant("a replay by filter is not fenced", "redbox/box/inspect.py", "yield found.seen", "yield [SeenClaim(each.event_id) for each in found.seen]", OPERATIONS),
    Mutant("a replay by group is not fenced", "redbox/box/inspect.py", "yield [SeenClaim(each.event_id, each.number) for each in found_in_group]", "yield [SeenClaim(each.event_id) for each in found_in_group]", OPERATIONS),
    Mutant("a replay of records is not fenced", "redbox/box/bulk.py", 'SeenClaim(event_id, numbers.get(event_id, ""))', "SeenClaim(event_id)", OPERATIONS),
    Mutant("a replay goes on although its canary died", "redbox/box/replay.py", "                            return\n", "                            pass\n", DEAD_LETTERS),
    Mutant("a canary that was dropped counts as published", "redbox/box/canary.py", "await _count_ends(self._store) == self._ended", "True", DEAD_LETTERS),
    Mutant("a canary that was deleted on success counts as gone", "redbox/box/canary.py", "await _count_ends(self._store) == self._ended", "False", DEAD_LETTERS),
    Mutant("a refused event counts as a canary", "redbox/box/replay.py", "canaries += await self._step(batch)", "canaries += await self._step(batch) and batch", DEAD_LETTERS),
    Mutant("a search finds every payload", "redbox/box/selection.py", "return self.text is None or _holds(record, self.text)", "return True", SEARCH),
    Mutant("a listing ignores the phase", "redbox/box/selection.py", "if self.phase is not None and not (", "if False and not (", SEARCH),
    Mutant("a page of a search skips matches", "redbox/box/inspect.py", "        if len(matched) <= limit:", "        matched = matched[:limit]\n        if True:", SEARCH),
    Mutant("a page reads without a bound", "redbox/box/inspect.py", "or (look is not None and looked >= look)", "", SEARCH),
    Mutant("a bulk action finds what it changed again", "redbox/box/operate.py", "        ids: dict[str, None] = {}\n        async for found in at_most(most, selected_claims(self._store, selection)):\n", "        ids: dict[str, None] = {}\n        async for found in at_most(most, selected_claims(self._store, selection)):\n            yield [each.event_id for each in found]\n            continue\n", SEARCH),
    Mutant("a limit is not kept", "redbox/box/inspect.py", "yield items[:left]", "yield items", SEARCH),
    Mutant("a drop is not fenced by what was exported", "redbox/box/drop.py", "SeenClaim(line.event_id, line.number)", "SeenClaim(line.event_id)", DEAD_LETTERS),
    Mutant("a drop by id exports an event that died again", "redbox/cli/dead/selecting.py", "found if record.number == numbers[record.event_id]]", "found]", ("tests/cli/test_dead.py", "-k", "before_the_export")),
    Mutant("an event without its body is exported", "redbox/box/export_file.py", "if event.problem is None:", "if True:", ("tests/cli/test_dead.py", "-k", "without_its_body")),
    Mutant("an event without a readable copy is dropped", "redbox/box/drop.py", "if line.problem is None:", "if True:", DEAD_LETTERS),
    Mutant("a dry run drops", "redbox/box/drop.py", "if not drop.dry_run:", "if True:", DEAD_LETTERS),
    Mutant("without hard links an export replaces the only copy", "redbox/box/export_file.py", "os.O_CREAT | os.O_EXCL", "os.O_CREAT", EXPORT_FILE),
    Mutant("an export that gets no name leaves an empty file", "redbox/box/export_file.py", "            os.unlink(path)\n", "", EXPORT_FILE),
    Mutant("an export replaces the only copy", "redbox/box/export_file.py", "os.link(temporary, path)", "os.replace(temporary, path)", EXPORT_FILE),
    Mutant("a file that exists is noticed after the export", "redbox/box/export_file.py", "if not replace and path.exists():", "if False:", EXPORT_FILE),
    Mutant("half an export looks like a whole one", "redbox/box/export_file.py", 'tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)', "(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), str(path))", ("tests/cli/test_dead.py", "-k", "leaves_the_earlier_file")),
    Mutant("a ramp is no ramp", "redbox/box/pace.py", "if done <= in_ramp:", "if False:", PACE),
    Mutant("the time of the canary is made up for", "redbox/box/pace.py", "        self._started = time.monotonic()\n\n    def moment", "        pass\n\n    def moment", PACE),
    Mutant("operators need no name", "redbox/box/operate.py", "        self._check(who)\n        known = ", "        known = ", OPERATIONS),
    Mutant("a dry run acts", "redbox/box/operate.py", '        if flag("dry_run", dry_run):\n', "        if False:\n", OPERATIONS),
    Mutant("steps of one action have no common token", "redbox/box/operate.py", "if len(known) > STEP_COUNT else", "if False else", OPERATIONS),
    Mutant("a sweep by hand is recorded at its end only", "redbox/box/operate.py", "        await self._store.write_log(action, who=who, why=why, count=0,", "        0 and await self._store.write_log(action, who=who, why=why, count=0,", OPERATIONS),
    Mutant("an entry at the limit counts only its last steps", "redbox/box/operations_log.py", "        if over and all(", "        if over or all(", OPERATIONS),
    Mutant("the log forgets the first ids of an action", "redbox/box/operations_log.py", "last, steps = self._steps[0], self._steps[::-1]", "last, steps = self._steps[0], self._steps", OPERATIONS),
    Mutant("an action is looked for at its last step only", "redbox/box/operations_log.py", "logged.at if start is None else start):", "logged.at):", OPERATIONS),
    Mutant("the log is not filtered by its earliest time", "redbox/box/operations_log.py", "(since is None or entry.at >= since)", "True", OPERATIONS),
    Mutant("relays that are silent count as alive in conditions", "redbox/box/conditions.py", "relay.alive != silent", "True", CONDITIONS),
    Mutant("a rate that is not known is 0", "redbox/box/rates.py", "return None if grown < 0 else grown / seconds", "return max(0, grown) / seconds", CONDITIONS),
    Mutant("every scrape reads the store", "redbox/service/exporter.py", ">= FRESH_SECONDS", ">= 0", EXPORTER),
    Mutant("a store that is away is up", "redbox/service/exporter.py", "int(not all(away) if away else answers)", "1", EXPORTER),
    Mutant("a box that was removed is served", "redbox/service/exporter.py", "if self._all:  # a box", "if False:  # a box", EXPORTER),
    Mutant("one box that cannot be read fails the exporter", "redbox/service/exporter.py", "if failed and len(failed) == len(found):", "if failed:", EXPORTER),
    # the service
    Mutant("a token may be guessed part by part", "redbox/service/tokens.py", "                found = token\n        return found", "                return token\n        return found", SERVICE_TOKENS),
    Mutant("everyone may read the token file", "redbox/service/tokens.py", "if mode & (stat.S_IRWXG | stat.S_IRWXO):", "if mode & stat.S_IWOTH:", SERVICE_TOKENS),
    Mutant("a broken token file ends all tokens", "redbox/service/tokens.py", "except UsageError as error:\n            logger", "except UsageError as error:\n            self._tokens = []\n            logger", SERVICE_TOKENS),
    Mutant("a token has every scope", "redbox/service/access.py", "if scope not in token.scopes:", "if not token.scopes:", SERVICE_ACCESS),
    Mutant("ingest needs no token", "redbox/service/ingest/handlers.py", "    _may_put(request, request.route_handler)\n", "", SERVICE_ACCESS),
    Mutant("any name reaches the service", "redbox/service/headers.py", "return name in self._names or (", "return True or (", SERVICE_GATE),
    Mutant("a page of the same machine may post", "redbox/service/headers.py", 'if site not in (b"", b"same-origin", b"none"):', 'if site not in (b"", b"same-origin", b"none", b"same-site"):', SERVICE_GATE),
    Mutant("a form of another page is a link", "redbox/service/headers.py", 'scope["method"] in ("GET", "HEAD") and mode', "mode", SERVICE_GATE),
    Mutant("the origin is not looked at", "redbox/service/headers.py", "if changes and not all(", "if False and not all(", SERVICE_GATE),
    Mutant("the port of an origin is ignored", "redbox/service/headers.py", 'return parts.netloc.lower() == host.decode("latin-1").lower()', 'return (parts.hostname or "") == host.decode("latin-1").lower().partition(":")[0]', SERVICE_GATE),
    Mutant("headers may be without end", "redbox/service/connections.py", "if self._unused >= most and self.phase in (Phase.HEAD, Phase.BODY):", "if self._unused >= most and self.phase is Phase.BODY:", SERVICE_LIMITS),
    Mutant("trailers may be without end", "redbox/service/connections.py", "if self._unused >= most and self.phase in (Phase.HEAD, Phase.BODY):", "if self._unused >= most and self.phase is Phase.HEAD:", SERVICE_LIMITS),
    Mutant("a body may take for ever", "redbox/service/connections.py", "self._due = self.loop.time() + self._limits.body_seconds", "self._due = inf", SERVICE_LIMITS),
    Mutant("bodies of ended requests count", "redbox/service/connections.py", "        self.pool.held -= self._held\n", "", SERVICE_LIMITS),
    Mutant("a client that does not read is kept", "redbox/service/connections.py", "if now >= self._write_due:", "if False:", SERVICE_LIMITS),
    Mutant("a connection that is answered gives way", "redbox/service/connections.py", "found = self.pool.evict(Phase.IDLE, Phase.HEAD, Phase.BODY)", "found = self.pool.evict(*Phase)", SERVICE_LIMITS),
    Mutant("an address inside an IPv6 address passes", "redbox/publishers/addresses.py", "        if inner is not None:\n            return is_public(inner)", "        if inner is not None:\n            return True", ADDRESSES),
    Mutant("any address passes", "redbox/publishers/addresses.py", "    if not is_public(address):\n        raise", "    if False:\n        raise", ADDRESSES),
    Mutant("a rate that is no number is shown", "redbox/box/reports.py", "if 0 <= reported <= HIGHEST_RATE else None", "if True else None", ("tests/contract/test_damage.py",)),
    Mutant("a heartbeat of the far future shows a living relay", "redbox/box/reports.py", "beat.fields is None or timedelta(milliseconds=beat.seen - now) > AHEAD", "beat.fields is None", ("tests/contract/test_damage.py",)),
    # coalesced puts
    Mutant("ordered puts share the server with others", "redbox/box/coalescer.py", "alone = any(event.options for event, _ in self._queue)", "alone = False", COALESCER),
    Mutant("three calls at once", "redbox/box/coalescer.py", "AT_ONCE: Final = 2", "AT_ONCE: Final = 3", COALESCER),
    Mutant("a call is not bounded in bytes", "redbox/box/coalescer.py", "(size > STEP_BYTES or work > WORK)", "work > WORK", COALESCER),
    Mutant("a put that was cancelled in time is sent", "redbox/box/coalescer.py", "            if not answer.done():  # cancelled", "            if True:  # cancelled", COALESCER),
    Mutant("later puts go first", "redbox/box/coalescer.py", "self._queue.append((event, answer))", "self._queue.appendleft((event, answer))", COALESCER),
    Mutant("callers share one exception", "redbox/box/coalescer.py", "own = copy.copy(error)", "own = error", COALESCER),
    # durability, on servers with replicas and a disk
    Mutant("every durability is reached", "redbox/store/durability.py", "return (reply[0] if isinstance(reply, list) else int(reply)) >= self.wanted", "return True", DURABILITY),
    Mutant("one replica fewer will do", "redbox/store/durability.py", "patience), durability.replicas)", "patience), durability.replicas - 1)", DURABILITY),
    Mutant("an error confirms", "redbox/store/durability.py", "        if isinstance(reply, Exception):\n            return False\n", "        if isinstance(reply, Exception):\n            return True\n", PROBES),
    Mutant("a WAITAOF that does not wait is believed", "redbox/store/durability.py", "(probe > 0 and took < PROBE_SHORTEST)", "False", PROBES),
    Mutant("a confirmation is not looked at", "redbox/store/confirmations.py", "        if not confirmation.reached(replies[0]):", "        if False:", DURABILITY),
    Mutant("an id that was there needs no confirmation", "redbox/store/store.py", "unconfirmed if reply in (CREATED, EXISTS) else reply", "unconfirmed if reply == CREATED else reply", DURABILITY),
    Mutant("a transaction needs no confirmation", "redbox/store/transaction.py", "        if shortfall:", "        if False:", TRANSACTION),
    # faults of connections and servers
    Mutant("a put is not repeated", "redbox/store/store.py", "durability=durability, repeat=True))", "durability=durability))", (FAULTS, "-k", "put_whose")),
    Mutant("a claim is repeated", "redbox/store/store.py", "_claim_arguments(request, spread=spread))", "_claim_arguments(request, spread=spread), repeat=True)", (FAULTS, "-k", "claim_whose")),
    Mutant("an ack is repeated", "redbox/store/store.py", '"ack", head, by_work(weighed), durability)', '"ack", head, by_work(weighed), durability, repeat=True)', (FAULTS, "-k", "ack_whose")),
    Mutant("a flushed script is an error", "redbox/store/script_runner.py", "for evaluate in (by_sha, by_text):", "for evaluate in (by_sha, by_sha):", (FAULTS, "-k", "script_flush")),
    Mutant("a put that may have arrived says that it did not", "redbox/store/exchanges.py", "maybe=writes and sent)", "maybe=False)", (FAULTS, "-k", "put_whose")),
    Mutant("a failover is not waited for", "redbox/store/exchanges.py", "pause = next(failovers, None) if isinstance(replies[0], ReadOnlyError) else None", "pause = None", (HARD_CASES, "-k", "became_a_replica")),
    Mutant("a first rewrite confirms", "redbox/store/append_only_file.py", "            if state.rewriting:\n                return \"\"", "            if False:\n                return \"\"", FIRST_REWRITE),
    Mutant("a later rewrite does not confirm", "redbox/store/append_only_file.py", "return now is not None and self._known.are_still(now)", "return False", FIRST_REWRITE),
    Mutant("a resync is not noticed", "redbox/store/append_only_file.py", 'info.get("master_replid")', "None", FIRST_REWRITE),
    Mutant("a resync during a first rewrite is not noticed", "redbox/store/append_only_file.py", "or now.data != before.data", "", FIRST_REWRITE),
    Mutant("changed settings are not noticed", "redbox/store/append_only_file.py", "return self[:2] == now[:2] and self.commands <= now.commands", "return True", FIRST_REWRITE),
    Mutant("a wait that cannot be ended is waited for", "redbox/relay/claimer.py", "        if await self._end_wait():\n", "        if await self._end_wait() or True:\n", PAUSED_WRITES),
    Mutant("a busy server ends a relay", "redbox/errors.py", "= (StoreUnavailable, StoreFull, UnexpectedReply,", "= (StoreFull, UnexpectedReply,", STORE_ERRORS),
    Mutant("an unknown error ends a relay", "redbox/errors.py", "= (StoreUnavailable, StoreFull, UnexpectedReply,", "= (StoreUnavailable, StoreFull,", STORE_ERRORS),
    Mutant("an error after others says that nothing was changed", "redbox/errors.py", "effect = _AFTER_OTHERS.get(self.effect, self.effect)", "effect = self.effect", STORE_ERRORS),
    Mutant("an error says two things about its effect", "redbox/errors.py", "before, behind = self._around or (self.message, \"\")", "before, behind = self.message, \"\"", STORE_ERRORS),
    Mutant("a put that was not sent may have been carried out", "redbox/box/coalescer.py", "copy.copy(error).with_effect(Effect.NOTHING_CHANGED)", "error", COALESCER),
    Mutant("an error speaks for the whole job", "redbox/pipeline/source/connection.py", "if error.effect is not Effect.UNKNOWN:", "if False:", (OUTAGE, "-k", "whole_job")),
    Mutant("a job forgets that a command may have been carried out", "redbox/pipeline/source/connection.py", "if error.effect is not Effect.UNKNOWN:", "if True:", (OUTAGE, "-k", "whole_job")),
    Mutant("a placeholder in Python is taken literally", "redbox/publishers/registry.py", "        _refuse_placeholders(target, options)\n", "", ("tests/publishers/test_registry.py", "-k", "placeholders")),
    Mutant("an invalid option is blamed on the target", "redbox/cli/relay/settings.py", "options if error.argument in given else target", "target", (CONFIG, "-k", "words")),
    Mutant("an unknown option is blamed on the target", "redbox/publishers/registry.py", "        error.argument = unknown[0]\n", "", (RELAY_COMMAND, "-k", "wrong_usage")),
    Mutant("an invalid value is blamed on the target", "redbox/arguments.py", "    error.argument = name\n", "", (RELAY_COMMAND, "-k", "wrong_usage")),
    Mutant("a refused wait is repeated at once", "redbox/store/store.py", "if failed is not None and (", "if isinstance(reply, Exception) and (", ERROR_REPLIES),
    Mutant("a coalescer outlives its event loop", "redbox/box/put.py", "if coalescer is None or coalescer.loop is not asyncio.get_running_loop():", "if coalescer is None:", LOOPS),
    Mutant("claims what it cannot settle", "redbox/box/claims.py", "        await self._store.scripts.confirmations.of(self._durability)  # nothing", "        # nothing", DURABILITY),
    Mutant("a frozen sentinel uses up the time to connect", "redbox/store/connect.py", ", preparing=len(hosts) * limit", "", FROZEN),
    Mutant("the wait for a pool's connection is cut short", "redbox/store/connect.py", "math.inf if pool.timeout is None else pool.timeout", "0.0", FROZEN),
    Mutant("a frozen server is asked again", "redbox/store/exchanges.py", "pause = next(pauses, None) if now() < deadline else None", "pause = next(pauses, None)", FROZEN),
    Mutant("everyone tries to connect for itself", "redbox/store/attempt.py", "self._failure is not None and self._failed_at > asked_at", "False", FROZEN),
    Mutant("a transaction out of memory is another error", "redbox/store/transaction.py", "    if isinstance(error, StoreFull | StoreUnavailable):  # the same", "    if False:  # the same", TRANSACTION),
    Mutant("a push answers a command", "redbox/store/wire/multiplexer.py", "if not isinstance(reply, hiredis.PushNotification):", "if True:", MULTIPLEXER),
    Mutant("a silent server is waited for", "redbox/store/wire/multiplexer.py", '            self._fail(TimeoutError(f"no answer within {self.patience:g} s"))\n', "", MULTIPLEXER),
    Mutant("a connection to a former master is kept", "redbox/store/wire/multiplexer.py", "            self.retired = True  # after", "            pass  # after", MULTIPLEXER),
    Mutant("a slot that has moved is not followed", "redbox/store/wire/cluster.py", "await self._client.nodes_manager.move_slot(redirect)", "pass", (CLUSTER, "-k", "finished_move")),
    # the embedded server
    Mutant("a directory of another user is trusted", "redbox/store/embedded/private_directory.py", "if found.st_uid != os.geteuid():  # root too", "if False:  # root too", (PRIVATE, "-k", "directory_of_another_user")),
    Mutant("others may write into the directory", "redbox/store/embedded/private_directory.py", "stat.S_IMODE(found.st_mode) & ~OTHERS_WRITE)", "stat.S_IMODE(found.st_mode))", (PRIVATE, "-k", "lax_umask")),
    Mutant("a symbolic link in the directory is followed", "redbox/store/embedded/private_directory.py", 'raise UntrustedStore(f"{entry} is a symbolic link, which redbox does not follow; remove it")', "return True", (PRIVATE, "-k", "symbolic_link_is_not_followed")),
    Mutant("a file of another user is trusted", "redbox/store/embedded/private_directory.py", "    if found.st_uid != os.geteuid():\n", "    if False:\n", (PRIVATE, "-k", "file_of_another_user")),
    Mutant("a server of another user is asked whether it runs", "redbox/store/embedded/server.py", "            check_peer(connection, address)\n", "", (PRIVATE, "-k", "server_of_another_user or turns_out")),
    Mutant("a server of another user gets events", "redbox/store/embedded/wire.py", "                check_peer(connected, self.path)\n", "", (PRIVATE, "-k", "takes_over_the_socket or turns_out")),
    Mutant("a stream has the name of a batch", "redbox/store/store.py", "(action, keys.check_stream_name(name), owner, batch, before)", "(action, name, owner, batch, before)", ("tests/contract/test_bulk.py", *IN_MEMORY)),
    Mutant("a condition calls any function", "redbox/pipeline/jobs/condition.py", "if name.lower() not in FUNCTIONS:", "if False:", (CONDITION, "-k", "refused")),
    Mutant("a condition contains any SQL", "redbox/pipeline/jobs/condition.py", "elif kind not in NODES or not package.startswith(_CATALYST):", "elif False:", (CONDITION, "-k", "refused")),
    # files with events in them
    Mutant("everyone can read rejects", "redbox/pipeline/source/rejects.py", "_make_private(directory, self._part)\n", "os.makedirs(directory, exist_ok=True)\n", (FILE_MODES, "-k", "rejects")),
    Mutant("everyone can read a report", "redbox/pipeline/files.py", "_create_private(spark, system, place) if private else system.create(place, False)", "system.create(place, False)", (FILE_MODES, "-k", "keeps_its_permissions")),
    # malformed records, and steps
    Mutant("one bad heartbeat breaks stats", "redbox/box/reports.py", "except msgspec.ValidationError:", "except TypeError:", DAMAGE),
    Mutant("a total that is no number breaks stats", "redbox/box/reports.py", " and is_count(value)\n", "\n", DAMAGE),
    Mutant("a damaged event breaks a listing", "redbox/store/codec.py", "except (ValueError, KeyError, OverflowError):", "except ZeroDivisionError:", DAMAGE),
    Mutant("a bad setting is guessed for a sweep", "redbox/settings.py", "        if wrong:\n", "        if False:\n", DAMAGE),
    Mutant("a call with much work is made in one step", "redbox/store/steps.py", "        if step and total > WORK:\n            yield step", "        if False:\n            yield step", STEPS),
    # transactions
    Mutant("a unique key is not watched", "redbox/store/transaction.py", "    watched += [keys.unique(box, unique) for unique in unique_keys]\n", "", (*TRANSACTION, "-k", "in_between")),
    Mutant("a refused event commits the rest", "redbox/store/transaction.py", "if any(reply not in (CREATED, EXISTS) for reply in checked):", "if False:", TRANSACTION),
    Mutant("a failing command of the caller goes unnoticed", "redbox/box/transaction.py", "            if isinstance(reply, Exception):\n", "            if False:\n", TRANSACTION),
    # HTTP
    Mutant("what fails on a kept connection is not sent again", "redbox/publishers/connections.py", "                raise _StaleConnection from error\n", "                raise\n", (HTTP, "-k", "kept_connection")),
    Mutant("what fails on a fresh connection is sent again", "redbox/publishers/connections.py", "return self._exchanges > 1 and not self._response_began", "return not self._response_began", (HTTP, "-k", "hangs_up")),
    Mutant("what was answered in part is sent again", "redbox/publishers/connections.py", "return self._exchanges > 1 and not self._response_began", "return self._exchanges > 1", (HTTP, "-k", "partial_response")),
    Mutant("a request is sent again on another kept connection", "redbox/publishers/connections.py", "resolver=resolver, force_close=True)", "resolver=resolver)", (HTTP, "-k", "on_a_kept_connection")),
    Mutant("the login of the target is sent to its proxy", "redbox/publishers/connections.py", "            proxy=self._proxy,\n", "            proxy=self._proxy,\n            proxy_headers=self._headers,\n", (HTTP, "-k", "login_of_the_target")),
    Mutant("a connection waits until its request is read", "redbox/publishers/connections.py", "        self.abort()\n", "        super().close()\n", (RESOURCES,)),
    Mutant("unread answers hold up requests", "redbox/publishers/connections.py", "next((task.cancel() for task in self._unread if not task.done() and not task.cancelling()), None)", "pass", (RESOURCES,)),
    Mutant("a request that waits ends one answer at most", "redbox/publishers/connections.py", "            while self._slots.locked():\n", "            if self._slots.locked():\n", (RESOURCES,)),
    Mutant("a long head is not HTTP", "redbox/publishers/connections.py", "                max_headers=HEAD_LINES,\n", "", (RESOURCES,)),
    Mutant("a name that cannot be resolved kills the event", "redbox/publishers/connections.py", "        except ValueError as error:  # of the codec", "        except ZeroDivisionError as error:  # of the codec", (RESOURCES,)),
    Mutant("the proxy's login is repeated", "redbox/publishers/http.py", '[*self._secret_values, login, proxy.password or "", encoded]', "self._secret_values", (RESOURCES,)),
    Mutant("the beginning of a secret is repeated", "redbox/publishers/redaction.py", "if form.startswith(text[at:]):", "if False:", (RESOURCES,)),
    Mutant("the time to connect has no limit", "redbox/publishers/connections.py", "connect(request, [], _TIMEOUT)", "connect(request, [], aiohttp.ClientTimeout(total=None))", (HTTP, "-k", "accepts_no_connection")),
    Mutant("a body that should not be there hides the status", "redbox/publishers/connections.py", "end = _end_of_head(seen) if self._body is None else None", "end = None", (HTTP, "-k", "hide_the_status")),
    Mutant("a head that ends in two packets is not seen", "redbox/publishers/connections.py", "self._head_end = seen[-2:]", "pass", (CONNECTIONS, "-k", "packets_end")),
    Mutant("an answer that nobody asked for is kept", "redbox/publishers/connections.py", "(self._body is not None and self._body.is_eof())", "False", (CONNECTIONS, "-k", "unsolicited")),
    Mutant("what a target says first is taken for an answer", "redbox/publishers/connections.py", "if not self._exchanges or (self._body", "if (self._body", (CONNECTIONS, "-k", "unsolicited")),
    Mutant("an unread answer holds no place", "redbox/publishers/connections.py", "            task = asyncio.create_task(read_start(unread))\n", "            self._slots.release()\n            task = asyncio.create_task(read_start(unread))\n", (HTTP, "-k", "keeps_its_slot")),
    Mutant("an unread answer never gives its place back", "redbox/publishers/connections.py", "            task.add_done_callback(lambda _: self._discard(unread))\n", "", (HTTP, "-k", "frees_its_slot")),
    Mutant("an unread answer outlives the publisher", "redbox/publishers/connections.py", "        if self._unread:\n", "        if False:\n", (HTTP, "-k", "ends_unread_responses")),
    Mutant("a cancellation hides a refusal", "redbox/publishers/connections.py", "suppress(Exception, asyncio.CancelledError)", "suppress(Exception)", (HTTP, "-k", "cancellation_in_the_body")),
    Mutant("the body of a refusal may take longer than the timeout", "redbox/publishers/http.py", "await read_start(response, left)", "await read_start(response, None)", (HTTP, "-k", "timeout_in_the_body")),
    Mutant("a secret in another case of its quotes is kept", "redbox/publishers/redaction.py", "return [*map(re.escape, forms), *mixed]", "return [*map(re.escape, forms)]", (REDACTION, "-k", "however")),
    Mutant("a query without a name is shown", "redbox/publishers/http.py", "[value] if equals else [name, unquote_plus(name)]", "[value]", (HTTP, "-k", "without_a_name")),
    Mutant("the connection of a half-read answer is kept", "redbox/publishers/connections.py", "    finally:\n        _close(response)\n", "    finally:\n        pass\n", (HTTP, "-k", "status_decides")),
    Mutant("a malformed trace is passed on", "redbox/publishers/base.py", "if trace and _is_traceparent(trace) and", "if trace and", ("tests/publishers/test_contract.py", "-k", "malformed_trace and http")),
    Mutant("signatures have the time of the relay's machine", "redbox/publishers/http.py", "claim.store_ms // 1000", '__import__("time").time_ns() // 10**9', (HTTP, "-k", "time_of_the_store")),
    Mutant("the time since the claim is not counted", "redbox/events.py", " + int((time.monotonic() - self.received) * 1000)", "", (HTTP, "-k", "time_of_the_store")),
    Mutant("what can never be sent is tried again", "redbox/publishers/http.py", "return _unsendable(self._redact(str(error)))", "return NotPublished(self._redact(str(error)))", (HTTP, "-k", "never_be_sent")),
    Mutant("a secret that an answer repeats is kept", "redbox/publishers/http_responses.py", "_printable(redact(body.decode(errors=\"replace\")))", "_printable(body.decode(errors=\"replace\"))", (RESPONSES, "-k", "redacted")),
    Mutant("a password is no secret", "redbox/publishers/http.py", 'found += [login, login.partition(":")[2]] if ":" in login else []', "pass", (HTTP, "-k", "is_kept")),
    Mutant("a very long Retry-After means nothing", "redbox/publishers/http_responses.py", 'r"[0-9]+"', 'r"[0-9]{1,12}"', (RESPONSES, "-k", "retry_after")),
    # explanations
    Mutant("an explanation repeats control characters", "redbox/box/why/words.py", "shown = printable(text)", "shown = text", WHY),
    Mutant("an id that looks like an option is not marked as an id", "redbox/box/why/explanation.py", '(("--",) if event_id.startswith("-") else ())', "()", WHY),
    Mutant("one open breaker counts as all", "redbox/box/why/obstacles.py", "if all(relay.breaker_open for relay in alive):", "if any(relay.breaker_open for relay in alive):", WHY),
    Mutant("a silent relay counts as alive", "redbox/box/reports.py", "return self.seen <= SILENT", "return True", WHY),
    Mutant("events that the totals miss are not looked for", "redbox/box/why/snapshot.py", "    if missing <= 0:", "    if True:", WHY),
    Mutant("an event that the totals miss is in no index by itself", "redbox/box/why/snapshot.py", "bool(each.fields) and all(score is None", "bool(each.fields) or all(score is None", WHY),
    Mutant("a lost event counts as damaged", "redbox/box/why/event.py", "    if homeless:\n", "    if False:\n", WHY),
    Mutant("a dead event behind the head of its line blocks it", "redbox/box/why/event.py", "if line is not None and line.rank == 0:", "if line is not None:", WHY),
    Mutant("crossed lines are explained without end", "redbox/box/why/event.py", "if head is None or as_head:", "if head is None:", WHY),
    Mutant("an innocent suspect is named", "redbox/box/why/box.py", "worst = max(suspects,", "worst = min(suspects,", WHY),
    Mutant("failing relays explain scheduled events", "redbox/box/why/box.py", "not (retries or _claimable(snapshot))", "not _pending(snapshot)", WHY),
    Mutant("the breaker forgets when it opened first", "redbox/relay/breaker.py", "        if self._opened_at is None:\n", "        if True:\n", (*BREAKER, "-k", "since_it_opened")),
    Mutant("a breaker that closed is open since then", "redbox/relay/breaker.py", "            self._opened_at = None\n", "", (*BREAKER, "-k", "since_it_opened")),
    Mutant("a success does not end a row of failures", "redbox/relay/report.py", "            self.failures_in_row = 0\n", "", WHY),
    Mutant("a URL with a password is printed", "redbox/cli/why.py", 'return "@" in url or "?" in url', "return False", ("tests/cli/test_why.py", "-k", "password")),
    Mutant("a gap in the rates stays empty", "redbox/box/rates_history.py", "first, last = before.at // step + 1, after.at // step", "first, last = after.at // step, after.at // step", ("tests/contract/operations/test_rates_history.py", "--stores", "memory")),
    Mutant("a lost total makes a negative rate", "redbox/box/rates_history.py", "None if grown < 0 or seconds <= 0", "None if seconds <= 0", ("tests/contract/operations/test_rates_history.py", "--stores", "memory")),
    Mutant("samples of the future are shown", "redbox/box/rates_history.py", "each is not None and each.at <= now", "each is not None", ("tests/contract/operations/test_rates_history.py", "--stores", "memory")),
    Mutant("a feed samples while nobody listens", "redbox/service/live.py", "            self._sampler.cancel()\n            self._sampler = None\n", "            pass\n", ("tests/service/test_live.py",)),
    Mutant("a page that comes back gets everything again", "redbox/service/live.py", "if self.versions[name] > seen}", "if True}", ("tests/service/test_live.py",)),
    Mutant("a census never rests", "redbox/box/incidents.py", "self._not_before = ended + max(self.SOONEST, 20 * (ended - began))", "self._not_before = 0.0", ("tests/service/test_incidents.py",)),
    # alerts and traces
    Mutant("every relay sends the alerts of its box", "redbox/relay/alerts/service.py", 'if await self._marks.set("alerts", self._token, LEAD_SECONDS) != self._token:', "if False:", ALERTS),
    Mutant("the next leader sends what was sent", "redbox/relay/alerts/service.py", "_Note(await self._marks.read(mark))", '_Note("")', ALERTS),
    Mutant("an alert that was not taken is noted", "redbox/relay/alerts/service.py", "            if await self._send(condition.begun):\n", "            await self._send(condition.begun)\n            if True:\n", ALERTS),
    Mutant("a target that takes no alert is tried all the time", "redbox/relay/alerts/service.py", "        self._quiet_until = time.monotonic() + COOL_OFF\n", "", ALERTS),
    Mutant("each relay reports a new error group", "redbox/relay/alerts/service.py", '        await self._marks.set(known, "known", GROUP_SECONDS)\n', "", ALERTS),
    Mutant("an alert is about an alert", "redbox/relay/alerts/service.py", "claim.event.event_type.startswith(OWN_TYPES) or ", "", ALERTS),
    Mutant("each relay reports an outage", "redbox/relay/alerts/service.py", "outage.failures >= OUTAGE and outage.led and", "outage.failures >= OUTAGE and", ALERTS),
    Mutant("error groups without limit", "redbox/relay/alerts/service.py", "if len(self._group_alerts) >= GROUPS_PER_HOUR:", "if False:", ALERTS),
    Mutant("a box that is a little below its limit has room", "redbox/relay/alerts/conditions.py", "pending < ROOM * limit", "pending < limit", ALERTS),
    Mutant("an idle breaker keeps an outage alive", "redbox/relay/alerts/conditions.py", "before = {} if answered else self._failed", "before = self._failed", ALERTS),
    Mutant("calls of alerts pile up", "redbox/relay/alerts/sender.py", "if self._call is not None and not self._call.done():", "if False:", ALERTS),
    Mutant("a publish begins a trace of its own", "redbox/relay/otel/spans.py", '_extract({"traceparent": event.metadata.get("traceparent", "")})', "None", OTEL),
    Mutant("the target is a child of the put", "redbox/publishers/base.py", '(spans and spans.get(claim.event_id)) or ', "", OTEL),
    Mutant("a relay that has ended is observed", "redbox/relay/otel/instruments.py", "if not relay.running:", "if False:", OTEL),
]  # fmt: skip
