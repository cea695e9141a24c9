#!lua flags=allow-oom
-- reap: CLAIMED → PENDING, for claims whose lease has ended.
--
-- Guarantee: bounded; any number of reapers may run. The attempt stays counted. It is excused if the event was
-- claimed together with others, because then the expiry proves nothing against it. After two expiries in a row the
-- event is a suspect. No event becomes DEAD here: only a relay or an operator decides that. A lease that ends later
-- than the longest lease from now was given before the server's clock was set back. It is shortened to the longest
-- lease: its relay may be alive, and then renews it. Under the dead-head policy "skip" it also unblocks up to
-- `limit` lines that `configure` left blocked. It removes pauses that are over, of the box and of ordering keys.
--
-- KEYS[1]   meta     hash; names the box
-- ARGV[1]   limit    maximum of leases, and of lines
-- ARGV[2]   delay    ms until an event is available again
--
-- Returns   {1 if there may be more, id...}: the ids of the events that lost their claims
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "now_ms"
--- @include "open_box"
--- @include "check_keys"
--- @include "check_event_keys"
--- @include "check_line_keys"
--- @include "end_key_pauses"
--- @include "find_pause_end"
--- @include "unblock_line"
--- @include "enqueue"
--- @include "add_history"
--- @include "note_start"
--- @include "increase_total"
--- @include "send_hint"
--- @include "format_integer"
--- @include "as_number"
--- @include "lower_longest_lease"
--- @include "read_event"

local FIELDS = { "state", "claimed_by", "claim", "ordering_key", "unique_key", "attempts", "excused", "expiries",
  "exhausted", "alone", "claimed_at" }
local limit, delay = tonumber(ARGV[1]), tonumber(ARGV[2])
local settings, refusal = open_box()
if refusal then
  return refusal
end
local now = now_ms()
local pause_ends = settings.paused and find_pause_end(settings.paused) or 0
if pause_ends > 0 and pause_ends <= now then
  redis.call("HDEL", key.meta, "paused", "pause_who", "pause_why")
end
if keys_paused then
  end_key_pauses(now)
end
local expired, lost = {}, {}
local ended = redis.call("ZRANGEBYSCORE", key.claimed, "-inf", now, "LIMIT", 0, limit)
for _, id in ipairs(ended) do
  local event = read_event(id, FIELDS)
  if event.state == "CLAIMED" then
    check_event_keys(id, event.ordering_key, event.unique_key)
    event.id = id
    expired[#expired + 1] = event
  else
    lost[#lost + 1] = id
  end
end
local longest = settings.longest_lease
local far = longest > 0
  and redis.call("ZRANGEBYSCORE", key.claimed, "(" .. format_integer(now + longest), "+inf", "LIMIT", 0, limit) or {}
local blocked = settings.blocks and {} or redis.call("ZRANGE", key.blocked, 0, limit - 1)
for _, ordering in ipairs(blocked) do
  check_line_keys(ordering, 1)
end
check_keys()

local pauses_left = keys_paused and keys_paused <= now
local reply = { (#ended == limit or #far == limit or #blocked == limit or pauses_left) and 1 or 0 }
for i, event in ipairs(expired) do
  local id, hash = event.id, event_key .. event.id
  local expiries, attempts = as_number(event.expiries) + 1, as_number(event.attempts)
  local why = "lease expired while held by " .. (event.claimed_by or "an unknown relay")
  add_history(id, now, event.claim, "expired", event.claimed_by, why)
  redis.call("HSET", hash, "state", "PENDING", "available_at", now + delay, "last_error", why,
    "expiries", expiries, note_start(event, event.claim, attempts))
  redis.call("HDEL", hash, "claimed_at", "claimed_by")
  if not event.alone and not event.exhausted then
    redis.call("HSET", hash, "excused", as_number(event.excused) + 1)
  end
  redis.call("ZREM", key.claimed, id)
  enqueue(id, now + delay, attempts, expiries, event.ordering_key, event.unique_key)
  reply[i + 1] = id
end
for _, id in ipairs(lost) do
  redis.call("ZADD", key.lost, now, id)
  redis.call("ZREM", key.claimed, id)
end
for _, ordering in ipairs(blocked) do
  unblock_line(ordering, now)
end
for _, id in ipairs(far) do
  redis.call("ZADD", key.claimed, format_integer(now + longest), id)
end
if longest > 0 then
  lower_longest_lease(longest, now)
end
increase_total("expired", #expired)
if settings.max_in_flight then
--- @include "note_room"
  note_room(settings, #ended, now)
end
send_hint()
return reply
