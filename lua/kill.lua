#!lua flags=allow-oom
-- kill: CLAIMED → DEAD; for an operator also PENDING → CLAIMED → DEAD in one step.
--
-- Guarantee: a relay's kill is fenced; an operator's takes the claim over, so that the relay that had it is fenced
-- from then on. Under the dead-head policy "block" a dead head keeps its place and stops its line; under "skip", and
-- for one in the middle of a line, the line goes on.
--
-- KEYS[1]   meta     hash; names the box
-- ARGV[1]   relay    identifier of the caller; "" for an operator
-- ARGV[2]   who      the operator; "" for a relay
-- ARGV[3]   why      the operator's reason
-- ARGV[4]   drop     1 to remove the event at once, 0 to keep it among the dead
-- ARGV[5]   id       then for each event the following
-- ARGV[6]   number   its claim number; "" for an operator
-- ARGV[7]   error    text, bounded by the caller; "" leaves last_error as it is
--
-- Returns   for each event OK, LEASELOST, NOTLIVE (terminal already) or UNKNOWN
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "now"
--- @include "open_box"
--- @include "touch"
--- @include "fence"
--- @include "touch_event"
--- @include "leave_line"
--- @include "remember"
--- @include "erase"
--- @include "record_action"
--- @include "count"
--- @include "hint"
--- @include "whole"
--- @include "read_event"

local FIELDS = { "state", "claimed_by", "claim", "ordering_key", "unique_key" }
local relay, who, why, drop = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == "1"
local operator = relay == ""
local settings, refusal = open_box()
if refusal then
  return refusal
end
local now = whole(now_ms())

local function judge(event, number)
  if operator then
    if not event.state then
      return "UNKNOWN"
    end
    return (event.state == "PENDING" or event.state == "CLAIMED") and "OK" or "NOTLIVE"
  end
  return fence(event.state, event.claimed_by, event.claim, relay, number) and "OK" or "LEASELOST"
end

local replies, settled, killed, seen, fenced = {}, {}, {}, {}, 0
for at = 5, #ARGV, 3 do
  local id = ARGV[at]
  local event = read_event(id, FIELDS)
  local word = judge(event, ARGV[at + 1])
  if seen[id] then
    word = operator and "NOTLIVE" or "LEASELOST"
  end
  if word == "OK" then
    seen[id] = true
    touch_event(id, event.ordering_key, event.unique_key)
    settled[#settled + 1] = { at, event }
    killed[#killed + 1] = id
  elseif word == "LEASELOST" then
    fenced = fenced + 1
  end
  replies[#replies + 1] = word
end
touch()

for _, item in ipairs(settled) do
  local at, event = item[1], item[2]
  local id, reason, ordering = ARGV[at], ARGV[at + 2], event.ordering_key
  local number = operator and whole(redis.call("HINCRBY", key.counters, "claimed", "1")) or event.claim
  if event.state == "PENDING" then
    redis.call("HSET", event_key .. id, "state", "CLAIMED", "claimed_at", now, "claimed_by", who, "claim", number)
  end
  remember(id, now, number, "died", operator and who or relay, reason)
  redis.call("HSET", event_key .. id, "state", "DEAD", "died_at", now, "claim", number)
  if reason ~= "" then
    redis.call("HSET", event_key .. id, "last_error", reason)
  end
  redis.call("HDEL", event_key .. id, "claimed_at", "claimed_by", "expiries")
  redis.call("ZREM", key.claimed, id)
  redis.call("ZADD", key.dead, now, id)
  redis.call("ZREM", key.pending, id)
  redis.call("ZREM", key.waiting, id)
  redis.call("ZREM", key.suspect, id)
  redis.call("ZREM", key.retries, id)
  if event.unique_key then
    redis.call("ZREM", unique_key .. event.unique_key, id)
  end
  if ordering then
    local head = redis.call("ZRANGE", line_key .. ordering, "0", "0")[1] == id
    if head and settings.blocks and not drop then
      redis.call("ZADD", key.blocked, now, ordering)
    else
      leave_line(id, ordering, now)
    end
  end
  if drop then
    redis.call("ZREM", key.dead, id)
  end
end
erase(drop and killed or {})
record_action("kill", who, why, killed)
count("dead", #settled)
count("dropped", drop and #settled or 0)
count("fenced", fenced)
hint()
return replies
