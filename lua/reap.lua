#!lua flags=allow-oom
-- reap: CLAIMED → PENDING, for claims whose lease has ended.
--
-- Guarantee: bounded; any number of reapers may run. The attempt stays counted; it is excused when the event was
-- claimed together with others, since then the expiry proves nothing against it. From the second expiry in a row the
-- event is a suspect. No event dies here: that needs an owner. A lease that ends later than the longest lease from now
-- was given before the server's clock was set back, and is shortened to the longest lease: its relay may be alive, and
-- renews it. Under the dead-head policy "skip" it also frees lines that are still blocked, `limit` of them: an
-- operator's process may have ended before it had freed them all.
--
-- KEYS[1]   meta     hash; names the box
-- ARGV[1]   limit    count
-- ARGV[2]   delay    ms until it is available again
--
-- Returns   {1 when there may be more to give back or to free, id...}: the ids given back
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "now"
--- @include "open_box"
--- @include "touch"
--- @include "touch_event"
--- @include "touch_line"
--- @include "free_line"
--- @include "enqueue"
--- @include "remember"
--- @include "count"
--- @include "hint"
--- @include "whole"
--- @include "as_number"
--- @include "lower_longest"
--- @include "read_event"

local FIELDS = { "state", "claimed_by", "claim", "ordering_key", "unique_key", "attempts", "excused", "expiries",
  "exhausted", "alone" }
local limit, delay = tonumber(ARGV[1]), tonumber(ARGV[2])
local settings, refusal = open_box()
if refusal then
  return refusal
end
local now = now_ms()
local expired, lost = {}, {}
local ended = redis.call("ZRANGEBYSCORE", key.claimed, "-inf", now, "LIMIT", 0, limit)
for _, id in ipairs(ended) do
  local event = read_event(id, FIELDS)
  if event.state == "CLAIMED" then
    touch_event(id, event.ordering_key, event.unique_key)
    expired[#expired + 1] = { id, event }
  else
    lost[#lost + 1] = id
  end
end
local longest = settings.longest_lease
local far = longest > 0
  and redis.call("ZRANGEBYSCORE", key.claimed, "(" .. whole(now + longest), "+inf", "LIMIT", 0, limit) or {}
local blocked = settings.blocks and {} or redis.call("ZRANGE", key.blocked, 0, limit - 1)
for _, ordering in ipairs(blocked) do
  touch_line(ordering, 1)
end
touch()

local reply = { (#ended == limit or #far == limit or #blocked == limit) and 1 or 0 }
for position, item in ipairs(expired) do
  local id, event = item[1], item[2]
  local expiries = as_number(event.expiries) + 1
  local why = "lease expired while held by " .. (event.claimed_by or "an unknown relay")
  remember(id, now, event.claim, "expired", event.claimed_by, why)
  redis.call("HSET", event_key .. id, "state", "PENDING", "available_at", now + delay, "last_error", why,
    "expiries", expiries)
  redis.call("HDEL", event_key .. id, "claimed_at", "claimed_by")
  if not event.alone and not event.exhausted then
    redis.call("HSET", event_key .. id, "excused", as_number(event.excused) + 1)
  end
  redis.call("ZREM", key.claimed, id)
  enqueue(id, now + delay, as_number(event.attempts), expiries, event.ordering_key, event.unique_key)
  reply[position + 1] = id
end
for _, id in ipairs(lost) do
  redis.call("ZADD", key.lost, now, id)
  redis.call("ZREM", key.claimed, id)
end
for _, ordering in ipairs(blocked) do
  free_line(ordering, now)
end
for _, id in ipairs(far) do
  redis.call("ZADD", key.claimed, whole(now + longest), id)
end
if longest > 0 then
  lower_longest(longest, now)
end
count("expired", #expired)
hint()
return reply
