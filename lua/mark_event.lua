#!lua flags=allow-oom
-- mark_event: a PUBLISHED or DEAD event gets a note of what became of it elsewhere. It stays what it is.
--
-- Guarantee: fenced by the claim number that the caller saw: what was replayed meanwhile is not marked, however it ended
-- then. A replay clears the marks. Being superseded takes a claim number of its own and ends the mark of the archive, so
-- that a copy made before it does not count as this event; marked so already, it is OK and stays as it is.
--
-- KEYS[1]   meta     hash; names the box
-- ARGV[1]   field    superseded_by | archived
-- ARGV[2]   id       then for each event the following
-- ARGV[3]   number   the claim number it must still have
-- ARGV[4]   value    the id of the event that replaces it, or where it was archived
--
-- Returns   for each event OK, NOTTERMINAL, CHANGED (another claim number) or UNKNOWN
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "open_box"
--- @include "check_keys"
--- @include "format_integer"
--- @include "read_event"

local FIELDS = { "state", "claim", "superseded_by" }
local field = ARGV[1]
local _, refusal = open_box()
if refusal then
  return refusal
end

local function judge(event, number, value)
  if not event.state then
    return "UNKNOWN"
  end
  if event.state ~= "DEAD" and event.state ~= "PUBLISHED" then
    return "NOTTERMINAL"
  end
  if field == "superseded_by" and event.superseded_by == value then
    return "OK", true
  end
  return event.claim == number and "OK" or "CHANGED"
end

local replies, marked = {}, {}
for at = 2, #ARGV, 3 do
  local id, number, value = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local event = read_event(id, FIELDS)
  local word, done = judge(event, number, value)
  if word == "OK" and not done then
    marked[#marked + 1] = { id = id, value = value }
  end
  replies[#replies + 1] = word
end
check_keys({ "counters" })

for _, item in ipairs(marked) do
  local place = event_key .. item.id
  redis.call("HSET", place, field, item.value)
  if field == "superseded_by" then
    redis.call("HSET", place, "claim", format_integer(redis.call("HINCRBY", key.counters, "claimed", 1)))
    redis.call("HDEL", place, "archived")
  end
end
return replies
