#!lua flags=allow-oom
-- retry: CLAIMED → PENDING, after a failure.
--
-- Guarantee: fenced; a claim that is gone changes nothing. The attempt was counted when it was claimed; one that the
-- caller excuses, since it proves nothing against the event, does not use up the limit. The delay is the caller's, but
-- at least a millisecond, so that available_at is always after now.
--
-- KEYS[1]   meta     hash; names the box
-- ARGV[1]   relay    identifier of the caller
-- ARGV[2]   id       then for each claim the following
-- ARGV[3]   number   its claim number
-- ARGV[4]   delay    ms from now
-- ARGV[5]   excuse   1 to excuse the attempt
-- ARGV[6]   error    text, bounded by the caller
--
-- Returns   for each claim OK or LEASELOST
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "now"
--- @include "open_box"
--- @include "touch"
--- @include "touch_event"
--- @include "fence"
--- @include "enqueue"
--- @include "remember"
--- @include "count"
--- @include "hint"
--- @include "as_number"
--- @include "read_event"

local FIELDS = { "state", "claimed_by", "claim", "ordering_key", "unique_key", "attempts", "excused", "exhausted" }
local relay = ARGV[1]
local _, refusal = open_box()
if refusal then
  return refusal
end
local now = now_ms()
local replies, settled, seen, fenced = {}, {}, {}, 0
for at = 2, #ARGV, 5 do
  local id = ARGV[at]
  local event = read_event(id, FIELDS)
  if fence(event.state, event.claimed_by, event.claim, relay, ARGV[at + 1]) and not seen[id] then
    seen[id] = true
    touch_event(id, event.ordering_key, event.unique_key)
    settled[#settled + 1] = { at, event }
    replies[#replies + 1] = "OK"
  else
    fenced = fenced + 1
    replies[#replies + 1] = "LEASELOST"
  end
end
touch()

for _, item in ipairs(settled) do
  local at, event = item[1], item[2]
  local id, available_at, why = ARGV[at], now + math.max(1, tonumber(ARGV[at + 2])), ARGV[at + 4]
  remember(id, now, event.claim, "retried", relay, why)
  redis.call("HSET", event_key .. id, "state", "PENDING", "available_at", available_at, "last_error", why)
  redis.call("HDEL", event_key .. id, "claimed_at", "claimed_by", "expiries")
  if ARGV[at + 3] == "1" and not event.exhausted then
    redis.call("HSET", event_key .. id, "excused", as_number(event.excused) + 1)
  end
  redis.call("ZREM", key.claimed, id)
  enqueue(id, available_at, as_number(event.attempts), 0, event.ordering_key, event.unique_key)
end
count("retried", #settled)
count("fenced", fenced)
hint()
return replies
