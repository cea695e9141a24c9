#!lua flags=allow-oom
-- sweep: removes PUBLISHED or DEAD events past their retention completely.
--
-- Guarantee: bounded per call; continues at the cursor. The retention is given as arguments. A dead head that blocks
-- its line is kept. So are events that are not archived, if the box is set to that, and events that are in the index
-- by mistake: their own state and time say otherwise, or only a body is left.
--
-- KEYS[1]   meta          hash; names the box
-- ARGV[1]   index         published | dead
-- ARGV[2]   age           ms; older events are removed; "" for no limit
-- ARGV[3]   keep          number of newest events to keep; "" for no limit
-- ARGV[4]   limit         maximum to read
-- ARGV[5]   dry           1 to count them only
-- ARGV[6]   score         cursor; "" to begin
-- ARGV[7]   id            cursor
--
-- Returns   {number of events removed, 1 if there may be more, score, id}: the last two are the next cursor
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "now_ms"
--- @include "open_box"
--- @include "check_keys"
--- @include "call_in_chunks"
--- @include "find_rank_after"
--- @include "call_with_events"
--- @include "erase_events"
--- @include "increase_total"
--- @include "read_event"
--- @include "as_number"

local FIELDS = { "state", "published_at", "died_at", "ordering_key", "archived" }
local name, age, keep, limit = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local dry, score, id = ARGV[5] == "1", ARGV[6], ARGV[7]
local _, refusal = open_box()
if refusal then
  return refusal
end
local index, state, finished_at = key[name], string.upper(name), name == "dead" and "died_at" or "published_at"
local now = now_ms()
local going = 0
if age ~= "" then
  going = redis.call("ZCOUNT", index, "-inf", now - tonumber(age))
end
if keep ~= "" then
  going = math.max(going, redis.call("ZCARD", index) - tonumber(keep))
end
local first = score ~= "" and find_rank_after(index, score, id) or 0
local last = math.min(first + limit, going) - 1
if last < first then
  return { 0, 0, score, id }
end

local found, gone = redis.call("ZRANGE", index, first, last, "WITHSCORES"), {}
local only_archived = redis.call("HGET", key.meta, "sweep") == "archived"
for at = 1, #found, 2 do
  local event = read_event(found[at], FIELDS)
  local blocking = event.ordering_key and redis.call("ZSCORE", line_key .. event.ordering_key, found[at])
  local since = as_number(event[finished_at])
  local finished = event.state == state and since > 0 and since == tonumber(found[at + 1])
  local nothing_left = not event.state and redis.call("EXISTS", event_key .. found[at], body_key .. found[at]) == 0
  if (finished or nothing_left) and not blocking and (event.archived or not only_archived) then
    gone[#gone + 1] = found[at]
  end
end
if not dry then
  check_keys()
  call_with_events("EXISTS", gone)
  call_in_chunks("ZREM", index, gone)
  erase_events(gone)
  increase_total("swept", #gone)
end
return { #gone, last + 1 < going and 1 or 0, found[#found], found[#found - 1] }
