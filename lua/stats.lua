#!lua flags=no-writes
-- stats: counts events by phase, and reads the oldest of each and the lifetime totals.
--
-- Guarantee: changes nothing; O(log n) in the number of events. The six phases add up to all events. Events behind
-- the head of their line are counted in their phase too; `waiting` is their number, and `waiting_due` the number of
-- those that are due.
--
-- KEYS[1]   meta     hash; names the box
--
-- Returns   {now, meta fields and values, counts, oldest, totals, relays, lost}, each a flat list of names and values,
--           except relays: {name, last beat in ms, fields and values or false} of the newest 100, and lost: the first
--           10 ids. `oldest` holds times in ms: available and suspect (longest due), scheduled and scheduled_suspect
--           (next due), waiting, in_flight (the lease that ends first), dead, newest_dead, completed, ramp (when it is
--           over). Of the counts, died_lately and published_lately are since 10 s before the newest death;
--           tokens, only with max_rate, is how many events it lets relays claim at once now, and at_rate 1 if relays claim
--           at the rate: they left less than half of a burst, or took the last token not long ago
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "now_ms"
--- @include "open_box"
--- @include "read_ramp"
--- @include "read_rate"
--- @include "format_integer"

local LATELY = 10000
local settings, refusal = open_box()
if refusal then
  return refusal
end
local now = now_ms()
local later = "(" .. now

local function due_and_later(index)
  local all, ahead = redis.call("ZCARD", index), redis.call("ZCOUNT", index, later, "+inf")
  return all - ahead, ahead
end

local available, ahead = due_and_later(key.pending)
local suspects_due, suspects_ahead = due_and_later(key.suspect)
local waiting_due, waiting_ahead = due_and_later(key.waiting)
local retrying = redis.call("ZCOUNT", key.retries, later, "+inf")
local counts = {
  "AVAILABLE", available + suspects_due + waiting_due,
  "SCHEDULED", ahead + suspects_ahead + waiting_ahead - retrying,
  "RETRY_SCHEDULED", retrying,
  "IN_FLIGHT", redis.call("ZCARD", key.claimed),
  "DEAD", redis.call("ZCARD", key.dead),
  "COMPLETED", redis.call("ZCARD", key.published),
  "waiting", waiting_due + waiting_ahead,
  "waiting_due", waiting_due,
  "suspects", suspects_due + suspects_ahead,
  "overdue", redis.call("ZCOUNT", key.claimed, "-inf", now),
  "blocked", redis.call("ZCARD", key.blocked),
  "lost", redis.call("ZCARD", key.lost),
  "paused_keys", keys_paused and redis.call("ZCOUNT", key.paused, later, "+inf") or 0,
}
local oldest = {}
local function note(name, index, from, upto)
  local first = redis.call("ZRANGEBYSCORE", index, from, upto, "WITHSCORES", "LIMIT", 0, 1)
  if first[2] then
    oldest[#oldest + 1] = name
    oldest[#oldest + 1] = first[2]
  end
end
note("available", key.pending, "-inf", now)
note("suspect", key.suspect, "-inf", now)
note("scheduled", key.pending, later, "+inf")
note("scheduled_suspect", key.suspect, later, "+inf")
note("waiting", key.waiting, "-inf", "+inf")
note("in_flight", key.claimed, "-inf", "+inf")
note("dead", key.dead, "-inf", "+inf")
local newest = redis.call("ZREVRANGE", key.dead, 0, 0, "WITHSCORES")[2]
if newest then
  oldest[#oldest + 1] = "newest_dead"
  oldest[#oldest + 1] = newest
  local since = tonumber(newest) - LATELY
  counts[#counts + 1] = "died_lately"
  counts[#counts + 1] = redis.call("ZCOUNT", key.dead, since, "+inf")
  counts[#counts + 1] = "published_lately"
  counts[#counts + 1] = redis.call("ZCOUNT", key.published, since, "+inf")
end
note("completed", key.published, "-inf", "+inf")
local ramp = read_ramp(settings, now)
if ramp and ramp.elapsed < ramp.length then
  oldest[#oldest + 1] = "ramp"
  oldest[#oldest + 1] = format_integer(now + ramp.length - ramp.elapsed)
end
local bucket = read_rate(settings, now)
if bucket then
  counts[#counts + 1] = "tokens"
  counts[#counts + 1] = math.floor(bucket.tokens)
  counts[#counts + 1] = "at_rate"
  local few = bucket.tokens < math.max(1, bucket.burst / 2) or bucket.burst < 2 and now - bucket.at < 2 / bucket.rate
  counts[#counts + 1] = bucket.at > 0 and few and 1 or 0
end
local RELAYS = 100
local relays, seen = {}, redis.call("ZREVRANGE", key.relays, 0, RELAYS - 1, "WITHSCORES")
for at = 1, #seen, 2 do
  local about = redis.pcall("HGETALL", relay_key .. seen[at])
  relays[#relays + 1] = { seen[at], seen[at + 1], not about.err and about or false }
end
local LOST = 10
local lost = redis.call("ZRANGE", key.lost, 0, LOST - 1)
return { now, redis.call("HGETALL", key.meta), counts, oldest, redis.call("HGETALL", key.counters), relays, lost }
