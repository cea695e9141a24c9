#!lua flags=allow-oom
-- claim: PENDING → CLAIMED, under a lease.
--
-- Guarantee: only PENDING events that are available: the oldest, or (`spread`) a sample of them; at most `limit`
-- events and `bytes` of bodies (but at least one event), and fewer if they take much work. Each gets a claim number
-- that never repeats in this box. The events are either ordinary ones or exactly one suspect, and no suspect is
-- claimed while another is. An event whose attempts are used up is marked exhausted, and its attempt is not counted.
-- Sends a hint if more events are due. All relays together claim no more than a ramp, max_rate and max_in_flight
-- allow. Pauses of ordering keys that are over end here.
--
-- KEYS[1]   meta          hash; names the box
-- ARGV[1]   relay         name of the caller
-- ARGV[2]   limit         maximum of events
-- ARGV[3]   lease         ms
-- ARGV[4]   attempts      maximum of attempts that are not excused; 0 for no limit
-- ARGV[5]   bytes         maximum, of bodies
-- ARGV[6]   holding       number of claims that the relay holds already
-- ARGV[7]   beside        id of the only event that the relay holds; "" if it holds none or several
-- ARGV[8]   spread        1 for a sample instead of the oldest
--
-- Returns   now, 1 for a suspect else 0, when the next event can be claimed in ms or -1, the first claim number (the
--           others follow it), the limit that holds due events back until then: 0 for none, 1 for a ramp or
--           max_rate, 2 for max_in_flight; then for each event: id, body, attempts, exhausted (0 or 1), created_at,
--           available_at, and if it was claimed before: excused, due_at (else false: it was due at available_at)
-- Errors    NEWERLAYOUT, PAUSED

--- @include "keys"
--- @include "now_ms"
--- @include "open_box"
--- @include "format_integer"
--- @include "choose_events"
--- @include "collect_claimable"
--- @include "find_next_due"
--- @include "clear_alone"
--- @include "raise_longest_lease"
--- @include "as_number"
--- @include "finish_claim"

local relay, limit, lease, attempt_limit = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local byte_limit, holding, beside, spread = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7], ARGV[8] == "1"
local settings, refusal = open_box()
if refusal then
  return refusal
end
local now = now_ms()
if settings.paused then
-- Included here and not above: defining a function takes time, also when it is not called.
--- @include "make_paused_error"
  local paused = make_paused_error(settings.paused, now)
  if paused then
    return paused
  end
end
if keys_paused and keys_paused <= now then
--- @include "end_key_pauses"
  end_key_pauses(now)
end
local allowance
if settings.ramp or settings.max_rate or settings.max_in_flight then
--- @include "limit_claims"
  allowance = limit_claims(settings, now)
  if allowance and allowance.count < 1 then
    local next_at, held_back = allowance.spend(0, find_next_due())
    return { now, 0, next_at, 0, held_back }
  end
  limit = allowance and format_integer(math.min(tonumber(limit), allowance.count)) or limit
end
local claimed_at, lease_until = format_integer(now), format_integer(now + lease)
local found, index, suspect = choose_events(claimed_at, limit, spread)
if not found[1] then
  return { now, 0, find_next_due(), 0, 0 }
end
local taken = collect_claimable(found, byte_limit, true)

local ids, hashes, events, bodies = taken.ids, taken.hashes, taken.events, taken.bodies
local leases, retried = taken.leases, taken.retried
clear_alone(ids[1] and beside or "", relay)
raise_longest_lease(settings, lease)
local first = redis.call("HINCRBY", key.counters, "claimed", format_integer(#ids)) - #ids + 1
local reply, by_itself = { now, suspect and 1 or 0, -1, first, 0 }, #ids == 1 and holding == 0
for i, id in ipairs(ids) do
  local event, hash, excused, due_at, exhausted = events[i], hashes[i], false, false, false
  local attempts = as_number(event[ATTEMPTS])
  if attempts > 0 then
    local excused_before, due_before, alone_before, exhausted_before =
      unpack(redis.call("HMGET", hash, "excused", "due_at", "alone", "exhausted"))
    excused, due_at = excused_before and as_number(excused_before), due_before or event[CREATED_AT]
    exhausted = attempt_limit > 0 and attempts - (excused or 0) >= attempt_limit
    retried[#retried + 1] = id
    if alone_before or exhausted_before then
      redis.call("HDEL", hash, "alone", "exhausted")
    end
  end
  if not exhausted then
    attempts = attempts + 1
  end
  redis.call("HSET", hash, "state", "CLAIMED", "claimed_at", claimed_at, "claimed_by", relay,
    "claim", format_integer(first + i - 1), "attempts", format_integer(attempts))
  if exhausted then
    redis.call("HSET", hash, "exhausted", "1")
  elseif by_itself then
    redis.call("HSET", hash, "alone", "1")
  end
  if event[UNIQUE_KEY] then
    redis.call("ZADD", unique_key .. event[UNIQUE_KEY], "+inf", id)
  end
  leases[2 * i - 1], leases[2 * i] = lease_until, id
  local at, available_at = 8 * i - 3, event[AVAILABLE_AT] or event[CREATED_AT]
  reply[at + 1], reply[at + 2], reply[at + 3], reply[at + 4] = id, bodies[i], attempts, exhausted and 1 or 0
  reply[at + 5], reply[at + 6], reply[at + 7], reply[at + 8] = event[CREATED_AT], available_at, excused, due_at
end
reply[3], reply[5] = finish_claim(taken, index, suspect, spread, first, now, allowance)
return reply
