"""One defect at a time: what is replaced in which script. Each must turn the suite red."""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    name: str
    file: str
    old: str
    new: str


MUTANTS = [
    # the fence
    Mutant("no claim number check", "include/fence.lua", " and event[3] == number", ""),
    Mutant("no claimed_by check", "include/fence.lua", " and event[2] == relay", ""),
    Mutant("claim numbers restart", "claim.lua", "  number = number + 1\n", "  number = position\n"),
    Mutant("one claim settled twice in one ack", "ack.lua", " and not seen[id]", ""),
    Mutant("one claim settled twice in one retry", "retry.lua", " and not seen[id]", ""),
    Mutant("fenced settlements are not counted", "ack.lua", 'count("fenced", fenced)', ""),
    # claim
    Mutant("claims what is not due", "claim.lua", '"ZRANGEBYSCORE", key.pending, "-inf", now', '"ZRANGEBYSCORE", key.pending, "-inf", "+inf"'),
    Mutant("claim check off by one", "claim.lua", 'redis.call("ZRANGEBYSCORE", key.pending, "-inf", now,', 'redis.call("ZRANGEBYSCORE", key.pending, "-inf", now - 1,'),
    Mutant("claim returns one more", "claim.lua", '"LIMIT", 0, limit)', '"LIMIT", 0, limit + 1)'),
    Mutant("claim takes the newest first", "claim.lua", 'redis.call("ZRANGEBYSCORE", key.pending, "-inf", now, "LIMIT", 0, limit)', 'redis.call("ZREVRANGEBYSCORE", key.pending, now, "-inf", "LIMIT", 0, limit)'),
    Mutant("attempts not counted", "claim.lua", "    attempts = attempts + 1\n", ""),
    Mutant("exhausted ones counted again", "claim.lua", '      "exhausted", 1)', '      "exhausted", 1, "attempts", attempts + 1)'),
    Mutant("limit of attempts off by one", "claim.lua", "attempts - excused >= attempt_limit", "attempts - excused > attempt_limit"),
    Mutant("excused attempts use up the limit", "claim.lua", "attempts - excused >= attempt_limit", "attempts >= attempt_limit"),
    Mutant("bytes are not bounded", "claim.lua", "if bytes > byte_limit and #events > 0 then", "if false then"),
    Mutant("a large event is never claimed", "claim.lua", "bytes > byte_limit and #events > 0", "bytes > byte_limit"),
    Mutant("a claimed event stays in pending", "claim.lua", 'in_chunks("ZREM", index, taken_ids)', ""),
    Mutant("a claimed event stays in retries", "claim.lua", 'in_chunks("ZREM", key.retries, retried)', ""),
    Mutant("a claim in flight does not hold its unique key", "claim.lua", 'unique_key .. fields[8], "+inf", id', 'unique_key .. fields[8], 0, id'),
    Mutant("a paused box is claimed from", "claim.lua", "if settings.paused then", "if false then"),
    Mutant("two suspects out at once", "claim.lua", "if suspect[1] and not suspect_out()", "if suspect[1]"),
    Mutant("suspects are never given out", "claim.lua", "if suspect[1] and not suspect_out()", "if false and not suspect_out()"),
    Mutant("suspects go before older work", "claim.lua", "(not ids[1] or tonumber(suspect[2]) <=", "(true or tonumber(suspect[2]) <="),
    Mutant("company is not noticed", "claim.lua", "local company = #events > 1 or holding > 0", "local company = false"),
    Mutant("what the relay holds is not company", "claim.lua", "#events > 1 or holding > 0", "#events > 1"),
    # put
    Mutant("an existing id is put again", "put.lua", 'if redis.call("EXISTS", event_key .. id) == 1 then', "if false then"),
    Mutant("different content under one id goes unnoticed", "put.lua", 'return { "DIFFERS", event_type, ordering, unique, #body <= TELLABLE and body or "" }', 'return { "EXISTS" }'),
    Mutant("duplicates inside a batch go unnoticed", "put.lua", "if batch_ids[id] then", "if false then"),
    Mutant("one unique key twice in a batch", "put.lua", "batch_unique[unique] or holder", "holder"),
    Mutant("all or nothing puts some", "put.lua", 'if mode == "all" and refused then', "if false then"),
    Mutant("raise goes on after a refusal", "put.lua", 'not (refused and mode == "until")', "true"),
    Mutant("index written before the check", "put.lua", "local function judge(at)\n", 'local function judge(at)\n  redis.call("ZADD", key.pending, 0, ARGV[at])\n'),
    Mutant("max_pending off by one", "put.lua", "if #created >= room then", "if #created > room then"),
    Mutant("waiting events do not fill the box", "put.lua", ' - redis.call("ZCARD", key.waiting)', ""),
    Mutant("the past is not clamped", "include/due.lua", "return math.max(now, tonumber(argument))", "return tonumber(argument)"),
    Mutant("a delay is taken as a moment", "include/due.lua", "return now + tonumber(string.sub(argument, 2))", "return tonumber(string.sub(argument, 2))"),
    # uniqueness
    Mutant("unique score wrong after a retry", "include/enqueue.lua", "attempts > 0 and available_at or 0, id)", "0, id)"),
    Mutant("unique score wrong when untouched", "include/enqueue.lua", "attempts > 0 and available_at or 0, id)", "available_at, id)"),
    Mutant("UNTOUCHED asks like ALL_LIVE", "include/holder.lua", 'scope == "UNTOUCHED" and now or "+inf"', '"+inf"'),
    Mutant("ALL_LIVE asks like UNTOUCHED", "include/holder.lua", 'scope == "UNTOUCHED" and now or "+inf"', "now"),
    Mutant("a published event holds its key", "ack.lua", 'redis.call("ZREM", unique_key .. event[3], id)', ""),
    Mutant("a dead event holds its key", "kill.lua", 'redis.call("ZREM", unique_key .. event[5], id)', ""),
    Mutant("replay ignores a held key", "replay.lua", "if event[3] and not force then", "if false then"),
    Mutant("replay cannot be forced", "replay.lua", "if event[3] and not force then", "if event[3] then"),
    # lines
    Mutant("promotion of the next in line forgotten", "include/leave_line.lua", "    advance_line(ordering_key, now)\n", ""),
    Mutant("a promoted event stays in waiting", "include/advance_line.lua", '    redis.call("ZREM", key.waiting, id)\n', ""),
    Mutant("a promoted event is due at once", "include/advance_line.lua", "enqueue(id, event[1],", "enqueue(id, now,"),
    Mutant("everyone is a head", "include/enqueue.lua", "local behind = ordering_key and", "local behind = false and"),
    Mutant("lines are sorted by id", "put.lua", 'redis.call("HINCRBY", key.counters, "seq", 1), id)', "0, id)"),
    Mutant("killing one in the middle promotes", "include/leave_line.lua", "  if was_head then\n", "  if true then\n"),
    Mutant("block does not block", "kill.lua", "if head and settings.blocks and not drop then", "if false then"),
    Mutant("block also blocks for one in the middle", "kill.lua", "if head and settings.blocks and not drop then", "if settings.blocks and not drop then"),
    Mutant("a replayed head leaves its key blocked", "replay.lua", 'redis.call("ZREM", key.blocked, ordering)', ""),
    Mutant("a replay under block joins the tail", "replay.lua", 'if redis.call("ZSCORE", line_key .. ordering, id) then', "if false then"),
    Mutant("a dropped head leaves its key blocked", "include/leave_line.lua", '    redis.call("ZREM", key.blocked, ordering_key)\n', ""),
    Mutant("a policy of skip leaves lines blocked", "configure.lua", "if open_box().blocks then", "if true then"),
    # settling
    Mutant("ack leaves claimed_at", "ack.lua", '"HDEL", event_key .. id, "claimed_at", "claimed_by"', '"HDEL", event_key .. id, "claimed_by"'),
    Mutant("ack leaves it in claimed", "ack.lua", 'in_chunks("ZREM", key.claimed, ids)', ""),
    Mutant("delete on success keeps it", "ack.lua", 'ARGV[2] == "1" or settings.deletes', 'ARGV[2] == "1"'),
    Mutant("an erased event leaves its body", "include/erase.lua", ", body_key .. id", ""),
    Mutant("an erased event leaves its history", "include/erase.lua", ", history_key .. id", ""),
    Mutant("retry forgets the error", "retry.lua", ', "last_error", why)', ")"),
    Mutant("retry forgets the delay", "retry.lua", "now + tonumber(ARGV[at + 2])", "now"),
    Mutant("retry keeps the expiries", "retry.lua", 'redis.call("HDEL", event_key .. id, "expiries")', ""),
    Mutant("retry is not remembered", "retry.lua", 'remember(id, now, event[3], "retried", relay, why)', ""),
    Mutant("history grows without end", "include/remember.lua", '  redis.call("LTRIM", history_key .. id, -HISTORY, -1)\n', ""),
    Mutant("release counts the attempt", "release.lua", "if not event[10] then", "if false then"),
    Mutant("release excuses an attempt that was not counted", "release.lua", "if not event[10] then", "if true then"),
    Mutant("release loses its place in time", "release.lua", 'delay == "" and event[9] or now + tonumber(delay)', "now + tonumber(delay == \"\" and 0 or delay)"),
    Mutant("release clears a suspicion", "release.lua", "tonumber(event[6] or 0), tonumber(event[8] or 0), event[4]", "tonumber(event[6] or 0), 0, event[4]"),
    Mutant("kill leaves it in waiting", "kill.lua", '  redis.call("ZREM", key.waiting, id)\n', ""),
    Mutant("kill leaves it in pending", "kill.lua", '  redis.call("ZREM", key.pending, id)\n', ""),
    Mutant("kill leaves it in retries", "kill.lua", '  redis.call("ZREM", key.retries, id)\n', ""),
    Mutant("kill leaves it in suspect", "kill.lua", '  redis.call("ZREM", key.suspect, id)\n', ""),
    Mutant("an operator's kill keeps the claim number", "kill.lua", 'operator and redis.call("HINCRBY", key.counters, "claimed", 1) or event[3]', "event[3] or 0"),
    Mutant("kill takes terminal events", "kill.lua", '(event[1] == "PENDING" or event[1] == "CLAIMED") and "OK" or "NOTLIVE"', '"OK"'),
    # reap
    Mutant("lease check off by one", "reap.lua", '"ZRANGEBYSCORE", key.claimed, "-inf", now,', '"ZRANGEBYSCORE", key.claimed, "-inf", now - 1,'),
    Mutant("reaps what has not expired", "reap.lua", '"ZRANGEBYSCORE", key.claimed, "-inf", now,', '"ZRANGEBYSCORE", key.claimed, "-inf", "+inf",'),
    Mutant("reap is not bounded", "reap.lua", '"LIMIT", 0, limit', '"LIMIT", 0, -1'),
    Mutant("an expiry alone is excused", "reap.lua", 'if event[10] == "1" and not event[9] then', "if not event[9] then"),
    Mutant("an expiry in company is not excused", "reap.lua", 'if event[10] == "1" and not event[9] then', "if false then"),
    Mutant("nobody becomes a suspect", "include/enqueue.lua", "expiries >= SUSPECT_FROM and key.suspect or key.pending", "key.pending"),
    Mutant("suspect after one expiry", "include/enqueue.lua", "local SUSPECT_FROM = 2", "local SUSPECT_FROM = 1"),
    Mutant("retries are not counted", "include/enqueue.lua", "    if attempts > 0 then\n", "    if false then\n"),
    # renew
    Mutant("renewal does nothing", "renew.lua", 'in_chunks("ZADD", key.claimed, leases)', ""),
    # replay, reschedule, drop, sweep
    Mutant("replay keeps published_at", "replay.lua", '"HDEL", event_key .. id, "published_at"', '"HDEL", event_key .. id, "none"'),
    Mutant("replay keeps attempts", "replay.lua", '"HDEL", event_key .. id, "attempts", "excused", "last_error"', '"HDEL", event_key .. id, "last_error"'),
    Mutant("replay always resets", "replay.lua", "  if reset then\n", "  if true then\n"),
    Mutant("replay takes live events", "replay.lua", 'if event[1] ~= "PUBLISHED" and event[1] ~= "DEAD" then', "if false then"),
    Mutant("replay ignores the delay", "replay.lua", "local available_at = due(ARGV[2], now)", "local available_at = now"),
    Mutant("a published attempt is not remembered", "replay.lua", 'remember(id, event[6], event[8], "published", event[7], "")', ""),
    Mutant("reschedule takes what is not pending", "reschedule.lua", 'if event[1] == "PENDING" then', "if event[1] then"),
    Mutant("reschedule moves only the index", "reschedule.lua", '"available_at", available_at, "due_at", available_at)', '"due_at", available_at)'),
    Mutant("drop takes live events", "drop.lua", 'if event[1] ~= "DEAD" and event[1] ~= "PUBLISHED" then', "if false then"),
    Mutant("drop is not fenced", "drop.lua", '(number == "" or number == event[2]) and "OK" or "CHANGED"', '"OK"'),
    Mutant("sweep age off by one", "sweep.lua", '"-inf", now - tonumber(ARGV[2]))', '"-inf", now - tonumber(ARGV[2]) - 1)'),
    Mutant("sweep keeps one fewer", "sweep.lua", "- tonumber(ARGV[3]))", "- tonumber(ARGV[3]) + 1)"),
    Mutant("a dry run sweeps", "sweep.lua", "if not dry then", "if true then"),
    Mutant("sweep removes a dead head that blocks", "sweep.lua", 'if not (ordering and redis.call("ZSCORE", line_key .. ordering, found[at])) then', "if true then"),
    # settings, log, reads
    Mutant("a newer layout is written to", "include/open_box.lua", "if meta[1] and tonumber(meta[1]) > LAYOUT then", "if false then"),
    Mutant("operators are not recorded", "include/record_action.lua", '  if who == "" or (ids and #ids == 0) then\n', "  if true then\n"),
    Mutant("pages repeat their last event", "include/rank_after.lua", "at[1] <= id", "at[1] < id"),
    Mutant("pages ignore the type", "page.lua", '(pattern == "" or glob(pattern, event[1]))', "true"),
    Mutant("pages ignore until", "page.lua", 'ARGV[8] ~= "" and ARGV[8] or "+inf"', '"+inf"'),
    Mutant("pages ignore since", "page.lua", 'if ARGV[7] ~= "" then', "if false then"),
    Mutant("waiting events count as available", "stats.lua", '"waiting", redis.call("ZCARD", key.waiting)', '"waiting", 0'),
    Mutant("retries count as scheduled", "stats.lua", "ahead + suspects_ahead - retrying", "ahead + suspects_ahead"),
]  # fmt: skip
