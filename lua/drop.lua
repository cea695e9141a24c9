#!lua flags=allow-oom
-- drop: removes a DEAD or PUBLISHED event completely.
--
-- Guarantee: fenced by the claim number that the caller saw, so that an event that was replayed since then stays.
-- Dropping a dead head unblocks its line, unless such heads are to be kept.
--
-- KEYS[1]   meta     hash; names the box
-- ARGV[1]   who      the operator; "" writes no log
-- ARGV[2]   why      the operator's reason
-- ARGV[3]   heads    1 to drop dead heads that block their lines too
-- ARGV[4]   token    the same in all steps of one action, which are one entry of the log; "" for an action of one step
-- ARGV[5]   id       then for each event the following
-- ARGV[6]   number   the claim number that it must still have, 0 for none; "" for any
--
-- Returns   for each event OK, NOTTERMINAL, CHANGED (another claim number), BLOCKING or UNKNOWN
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "now_ms"
--- @include "open_box"
--- @include "check_keys"
--- @include "check_event_keys"
--- @include "leave_line"
--- @include "call_in_chunks"
--- @include "call_with_events"
--- @include "erase_events"
--- @include "record_step"
--- @include "increase_total"
--- @include "send_hint"
--- @include "read_event"
--- @include "as_number"

local FIELDS = { "state", "claim", "ordering_key" }
local who, why, heads, token = ARGV[1], ARGV[2], ARGV[3] == "1", ARGV[4]
local _, refusal = open_box()
if refusal then
  return refusal
end
local now = now_ms()

local function judge(id, event, number)
  if not event.state then
    return "UNKNOWN"
  end
  if event.state ~= "DEAD" and event.state ~= "PUBLISHED" then
    return "NOTTERMINAL"
  end
  if number ~= "" and tonumber(number) ~= as_number(event.claim) then
    return "CHANGED"
  end
  local ordering = event.ordering_key
  return not heads and ordering and redis.call("ZSCORE", line_key .. ordering, id) and "BLOCKING" or "OK"
end

local replies, ids, seen, in_line, from = {}, {}, {}, {}, { PUBLISHED = {}, DEAD = {} }
for at = 5, #ARGV, 2 do
  local id, number = ARGV[at], ARGV[at + 1]
  local event = read_event(id, FIELDS)
  local word = seen[id] and "UNKNOWN" or judge(id, event, number)
  if word == "OK" then
    seen[id] = true
    if event.ordering_key then
      check_event_keys(id, event.ordering_key, false)
      in_line[#in_line + 1] = { id, event.ordering_key }
    end
    local gone = from[event.state]
    gone[#gone + 1] = id
    ids[#ids + 1] = id
  end
  replies[#replies + 1] = word
end
check_keys()
call_with_events("EXISTS", ids)

call_in_chunks("ZREM", key.published, from.PUBLISHED)
call_in_chunks("ZREM", key.dead, from.DEAD)
for _, item in ipairs(in_line) do
  leave_line(item[1], item[2], now)
end
erase_events(ids)
record_step("drop", who, why, ids, token)
increase_total("dropped", #ids)
send_hint()
return replies
