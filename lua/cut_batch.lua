#!lua flags=allow-oom
-- cut_batch: PENDING → CLAIMED, under a lease, into a batch of a stream.
--
-- Guarantee: claims as `claim` does, oldest first, and adds the claims to the batch in the same step. Attempts have
-- no limit: a stream kills no event. Only the owner of the stream can do it. It takes part in what all relays
-- together may claim under a ramp, max_rate and max_in_flight, and may claim nothing although events are available.
--
-- KEYS[1]   meta     hash; names the box
-- ARGV[1]   relay    name of the stream as a relay
-- ARGV[2]   limit    maximum of events
-- ARGV[3]   lease    ms
-- ARGV[4]   bytes    maximum, of bodies
-- ARGV[5]   until    only events available by then, ms; "" for now
-- ARGV[6]   stream   name
-- ARGV[7]   owner    of the stream
-- ARGV[8]   batch    number of the batch
--
-- Returns   how many events were claimed
-- Errors    NEWERLAYOUT, PAUSED, STREAMTAKEN

--- @include "keys"
--- @include "now_ms"
--- @include "open_box"
--- @include "make_paused_error"
--- @include "find_batch"
--- @include "format_integer"
--- @include "choose_events"
--- @include "collect_claimable"
--- @include "raise_longest_lease"
--- @include "as_number"
--- @include "call_in_chunks"
--- @include "finish_claim"

local relay, limit, lease, byte_limit = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local latest, stream, owner, batch = tonumber(ARGV[5]), ARGV[6], ARGV[7], ARGV[8]
local settings, refusal = open_box()
if refusal then
  return refusal
end
local members, taken_over = find_batch(stream, owner, batch)
local now = now_ms()
local paused = settings.paused and make_paused_error(settings.paused, now)
if taken_over or paused then
  return taken_over or paused
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
    allowance.spend(0, -1)
    return 0
  end
  limit = allowance and format_integer(math.min(tonumber(limit), allowance.count)) or limit
end
local claimed_at, lease_until = format_integer(now), format_integer(now + lease)
local found, index, suspect = choose_events(format_integer(math.min(now, latest or now)), limit, false)
if not found[1] then
  return 0
end
local taken = collect_claimable(found, byte_limit, false)

local ids, leases, retried, numbered = taken.ids, taken.leases, taken.retried, {}
raise_longest_lease(settings, lease)
local first = redis.call("HINCRBY", key.counters, "claimed", format_integer(#ids)) - #ids + 1
for i, id in ipairs(ids) do
  local event, hash, number = taken.events[i], taken.hashes[i], format_integer(first + i - 1)
  local attempts = as_number(event[ATTEMPTS])
  if attempts > 0 then
    redis.call("HDEL", hash, "alone", "exhausted")
    retried[#retried + 1] = id
  end
  redis.call("HSET", hash, "state", "CLAIMED", "claimed_at", claimed_at, "claimed_by", relay, "claim", number,
    "attempts", format_integer(attempts + 1))
  if event[UNIQUE_KEY] then
    redis.call("ZADD", unique_key .. event[UNIQUE_KEY], "+inf", id)
  end
  leases[2 * i - 1], leases[2 * i] = lease_until, id
  numbered[2 * i - 1], numbered[2 * i] = number, id
end
call_in_chunks("ZADD", members, numbered)
finish_claim(taken, index, suspect, false, first, now, allowance)
return #ids
