#!lua flags=allow-oom
-- mark_event: notes at a PUBLISHED or DEAD event what superseded it, or where it was archived. Its state stays.
--
-- Guarantee: fenced by the claim number that the caller saw: an event that was replayed since then is not marked. A
-- replay clears the marks. An event that is marked as superseded gets a new claim number and loses its archive mark,
-- so that an earlier copy in an archive does not count as this event. If it has the same mark already, it is OK and
-- stays as it is.
--
-- KEYS[1]   meta     hash; names the box
-- ARGV[1]   field    superseded_by | archived
-- ARGV[2]   id       then for each event the following
-- ARGV[3]   number   the claim number that it must still have, 0 for none
-- ARGV[4]   value    the id of the event that supersedes it, or where it was archived
--
-- Returns   for each event OK, NOTTERMINAL, CHANGED (another claim number) or UNKNOWN
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "open_box"
--- @include "check_keys"
--- @include "format_integer"
--- @include "read_event"
--- @include "as_number"

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
  return tonumber(number) == as_number(event.claim) and "OK" or "CHANGED"
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
  local hash = event_key .. item.id
  redis.call("HSET", hash, field, item.value)
  if field == "superseded_by" then
    redis.call("HSET", hash, "claim", format_integer(redis.call("HINCRBY", key.counters, "claimed", 1)))
    redis.call("HDEL", hash, "archived")
  end
end
return replies
