#!lua flags=allow-oom
-- kill: CLAIMED → DEAD; for an operator also PENDING → CLAIMED → DEAD in one step.
--
-- Guarantee: a relay's kill is fenced. An operator's kill takes the claim over, so that the relay that had it is
-- fenced from then on. Under the dead-head policy "block" a dead head keeps its place and blocks its line. Under
-- "skip", and if the event was not the head, the line continues.
--
-- KEYS[1]   meta     hash; names the box
-- ARGV[1]   relay    name of the caller; "" for an operator
-- ARGV[2]   who      the operator; "" for a relay
-- ARGV[3]   why      the operator's reason
-- ARGV[4]   drop     1 to remove the event at once, 0 to keep it as DEAD
-- ARGV[5]   token    the same in all steps of one action, for the log; "" for an action of one step
-- ARGV[6]   id       then for each event the following
-- ARGV[7]   number   its claim number; "" for an operator
-- ARGV[8]   error    text; the caller limits its length; "" keeps last_error
--
-- Returns   for each event OK, LEASELOST, NOTLIVE (it is terminal) or UNKNOWN
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "now_ms"
--- @include "open_box"
--- @include "collect_settled"
--- @include "format_integer"
--- @include "add_history"
--- @include "note_start"
--- @include "as_number"
--- @include "leave_line"
--- @include "erase_events"
--- @include "record_action"
--- @include "increase_total"
--- @include "send_hint"

local FIELDS = { "state", "claimed_by", "claim", "ordering_key", "unique_key", "attempts", "exhausted",
  "claimed_at" }
local relay, who, why, drop, token = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == "1", ARGV[5]
local operator = relay == ""
local settings, refusal = open_box()
if refusal then
  return refusal
end
local now = format_integer(now_ms())

local function judge(event, killed)
  if not event.state then
    return "UNKNOWN"
  end
  return (event.state == "PENDING" or event.state == "CLAIMED") and not killed and "OK" or "NOTLIVE"
end

local replies, events, ids, fenced = collect_settled(6, 3, FIELDS, relay, judge)

for _, event in ipairs(events) do
  local id, hash, reason = event.id, event_key .. event.id, ARGV[event.at + 2]
  local ordering, unique = event.ordering_key, event.unique_key
  local number = operator and format_integer(redis.call("HINCRBY", key.counters, "claimed", "1")) or event.claim
  if event.state == "PENDING" then
    redis.call("HSET", hash, "state", "CLAIMED", "claimed_at", now, "claimed_by", who, "claim", number)
  else
    redis.call("HSET", hash, "claim", number, note_start(event, number, as_number(event.attempts)))
  end
  add_history(id, now, number, "died", operator and who or relay, reason)
  redis.call("HSET", hash, "state", "DEAD", "died_at", now)
  if reason ~= "" then
    redis.call("HSET", hash, "last_error", reason)
  end
  redis.call("HDEL", hash, "claimed_at", "claimed_by", "expiries")
  redis.call("ZREM", key.claimed, id)
  redis.call("ZADD", key.dead, now, id)
  redis.call("ZREM", key.pending, id)
  redis.call("ZREM", key.waiting, id)
  redis.call("ZREM", key.suspect, id)
  redis.call("ZREM", key.retries, id)
  if unique then
    redis.call("ZREM", unique_key .. unique, id)
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
erase_events(drop and ids or {})
record_action("kill", who, why, ids, nil, nil, token)
increase_total("dead", #ids)
increase_total("dropped", drop and #ids or 0)
increase_total("fenced", fenced)
if settings.max_in_flight then
--- @include "note_room"
  note_room(settings, #ids, tonumber(now))
end
send_hint()
return replies
