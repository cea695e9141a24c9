#!lua flags=allow-oom
-- reschedule: PENDING stays PENDING, with another available_at.
--
-- Guarantee: an event keeps its place in its ordering line.
--
-- KEYS[1]   meta       hash; names the box
-- ARGV[1]   available  "" now, "+ms" from now, or "ms" absolute
-- ARGV[2]   who        the operator
-- ARGV[3]   why        the operator's reason
-- ARGV[4]   token      the same in all steps of one action, for the log; "" for an action of one step
-- ARGV[5]   id         then further ids
--
-- Returns   for each id OK, NOTPENDING or UNKNOWN
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "now_ms"
--- @include "open_box"
--- @include "check_keys"
--- @include "check_event_keys"
--- @include "parse_time"
--- @include "count_attempts"
--- @include "as_number"
--- @include "enqueue"
--- @include "record_step"
--- @include "send_hint"
--- @include "read_event"

local FIELDS = { "state", "attempts", "expiries", "ordering_key", "unique_key", "earlier_attempts" }
local available, who, why, token = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local _, refusal = open_box()
if refusal then
  return refusal
end
local now = now_ms()
local available_at = parse_time(available, now)
local replies, moved, ids = {}, {}, {}
for at = 5, #ARGV do
  local id = ARGV[at]
  local event = read_event(id, FIELDS)
  if event.state == "PENDING" then
    check_event_keys(id, event.ordering_key, event.unique_key)
    event.id = id
    moved[#moved + 1] = event
    ids[#ids + 1] = id
    replies[#replies + 1] = "OK"
  else
    replies[#replies + 1] = event.state and "NOTPENDING" or "UNKNOWN"
  end
end
check_keys()

for _, event in ipairs(moved) do
  local id = event.id
  redis.call("HSET", event_key .. id, "available_at", available_at, "due_at", available_at)
  local tried = count_attempts(event.attempts, event.earlier_attempts)
  enqueue(id, available_at, tried, as_number(event.expiries), event.ordering_key, event.unique_key)
end
record_step("reschedule", who, why, ids, token, available_at)
send_hint()
return replies
