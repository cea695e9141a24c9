#!lua flags=allow-oom
-- release: CLAIMED → PENDING, given back without having been tried.
--
-- Guarantee: a relay's release is fenced; an operator's takes the claim away, so that the relay is fenced from then
-- on. The attempt is excused: it does not use up the limit. Without a delay the event keeps its place in time.
--
-- KEYS[1]   meta     hash; names the box
-- ARGV[1]   relay    identifier of the caller; "" for an operator
-- ARGV[2]   who      the operator; "" for a relay
-- ARGV[3]   why      the operator's reason
-- ARGV[4]   delay    ms from now; "" keeps available_at
-- ARGV[5]   id       then for each event the following
-- ARGV[6]   number   its claim number; "" for an operator
--
-- Returns   for each event OK, LEASELOST, NOTCLAIMED or UNKNOWN
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "now"
--- @include "open_box"
--- @include "touch"
--- @include "touch_event"
--- @include "fence"
--- @include "enqueue"
--- @include "remember"
--- @include "record_action"
--- @include "count"
--- @include "hint"
--- @include "as_number"
--- @include "moment"
--- @include "read_event"

local FIELDS = { "state", "claimed_by", "claim", "ordering_key", "unique_key", "attempts", "excused", "expiries",
  "available_at", "exhausted", "created_at" }
local relay, who, why, delay = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local operator = relay == ""
local _, refusal = open_box()
if refusal then
  return refusal
end
local now = now_ms()

local function judge(event, number)
  if operator then
    if not event.state then
      return "UNKNOWN"
    end
    return event.state == "CLAIMED" and "OK" or "NOTCLAIMED"
  end
  return fence(event.state, event.claimed_by, event.claim, relay, number) and "OK" or "LEASELOST"
end

local replies, settled, released, seen, fenced = {}, {}, {}, {}, 0
for at = 5, #ARGV, 2 do
  local id = ARGV[at]
  local event = read_event(id, FIELDS)
  local word = judge(event, ARGV[at + 1])
  if seen[id] then
    word = operator and "NOTCLAIMED" or "LEASELOST"
  end
  if word == "OK" then
    seen[id] = true
    touch_event(id, event.ordering_key, event.unique_key)
    settled[#settled + 1] = { id, event }
    released[#released + 1] = id
  elseif word == "LEASELOST" then
    fenced = fenced + 1
  end
  replies[#replies + 1] = word
end
touch()

for _, item in ipairs(settled) do
  local id, event = item[1], item[2]
  local available_at = delay == "" and moment(event.available_at, event.created_at, now) or now + (tonumber(delay) or 0)
  remember(id, now, event.claim, "released", operator and who or event.claimed_by, why)
  redis.call("HSET", event_key .. id, "state", "PENDING", "available_at", available_at)
  redis.call("HDEL", event_key .. id, "claimed_at", "claimed_by")
  if not event.exhausted then
    redis.call("HSET", event_key .. id, "excused", as_number(event.excused) + 1)
  end
  redis.call("ZREM", key.claimed, id)
  enqueue(id, available_at, as_number(event.attempts), as_number(event.expiries), event.ordering_key, event.unique_key)
end
record_action("release", who, why, released)
count("released", #settled)
count("fenced", fenced)
hint()
return replies
