#!lua flags=no-writes
-- examine_keys: reads members of ordering lines and of unique keys, a step at a time, and what their events say.
--
-- Guarantee: changes nothing; bounded in members read. Each step over one line or key is one consistent view.
--
-- KEYS[1]   meta     hash; names the box
-- ARGV[1]   limit    maximum of members to read, of all keys together
-- ARGV[2]   kind     then for each key the following; line | unique
-- ARGV[3]   name     the ordering_key or unique_key
-- ARGV[4]   score    the position to continue after; "" for the beginning
-- ARGV[5]   id       of that position
--
-- Returns   for each key {1 if there may be more, score, id, head or false, state of the head or false, when it blocked
--           its line or false, end of its pause if meta does not know it or false, member...}: score and id are the
--           position to continue after; each member is {id, state or false, the key in its event or false}
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "open_box"
--- @include "find_rank_after"
--- @include "read_event"
--- @include "read_paused_keys"

local left = tonumber(ARGV[1])
local _, refusal = open_box()
if refusal then
  return refusal
end
local _, unnoted = read_paused_keys()
local replies = {}
for at = 2, #ARGV, 4 do
  local kind, name, score, id = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local members = (kind == "line" and line_key or unique_key) .. name
  local named = kind == "line" and "ordering_key" or "unique_key"
  local fields = { "state", named }
  local head, state, blocked, paused = redis.call("ZRANGE", members, 0, 0)[1] or false, false, false, false
  if kind == "line" then
    state = head and redis.call("HGET", event_key .. head, "state")
    blocked = redis.call("ZSCORE", key.blocked, name)
    paused = unnoted and redis.call("ZSCORE", key.paused, name)
  end
  local reply = { 0, score, id, head, state, blocked, paused }
  if left > 0 then
    local first = score ~= "" and find_rank_after(members, score, id) or 0
    local found = redis.call("ZRANGE", members, first, first + left - 1, "WITHSCORES")
    for member = 1, #found, 2 do
      local event = read_event(found[member], fields)
      reply[#reply + 1] = { found[member], event.state, event[named] }
    end
    left = left - #found / 2
    reply[1] = first + #found / 2 < redis.call("ZCARD", members) and 1 or 0
    reply[2], reply[3] = found[#found] or score, found[#found - 1] or id
  else
    reply[1] = 1
  end
  replies[#replies + 1] = reply
end
return replies
