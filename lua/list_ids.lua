#!lua flags=no-writes
-- list_ids: lists the ids of a range of an index, in order, a step at a time.
--
-- Guarantee: changes nothing; bounded in work.
--
-- KEYS[1]   meta       hash; names the box
-- ARGV[1]   index      pending | waiting | suspect | claimed | published | dead | retries | lost | blocked |
--                      paused
-- ARGV[2]   score      the position to continue after; "" for the beginning
-- ARGV[3]   id         of that position
-- ARGV[4]   last       score of the last position, itself included
-- ARGV[5]   last_id    of that position
-- ARGV[6]   since      lowest score, ms; "" for any
-- ARGV[7]   limit      maximum of events to read; one whose type takes more work to match counts as several
-- ARGV[8]   event_type glob; "" for any
--
-- Returns   {1 if there may be more, score, id, id...}: the position to continue after, then the ids
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "open_box"
--- @include "find_first_rank"
--- @include "find_rank_after"
--- @include "compile_glob"

local index, score, id, last_score, last_id = key[ARGV[1]], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local since, limit, pattern = ARGV[6], tonumber(ARGV[7]), ARGV[8]
local _, refusal = open_box()
if refusal then
  return refusal
end
local first = find_first_rank(index, since, score, id)
local final = find_rank_after(index, last_score, last_id) - 1
local last = math.min(first + limit - 1, final)
if last < first then
  return { 0, score, id }
end
local found = redis.call("ZRANGE", index, first, last)
local matches, cost = compile_glob(pattern)
local reply, work, looked = { 0, "", "" }, 0, #found
for at, each in ipairs(pattern ~= "" and found or {}) do
  local event_type = redis.call("HGET", event_key .. each, "event_type") or ""
  if matches(event_type) then
    reply[#reply + 1] = each
  end
  work = work + 1 + cost(event_type)
  if work >= limit then
    looked = at
    break
  end
end
if pattern == "" then
  for at, each in ipairs(found) do
    reply[3 + at] = each
  end
end
reply[1] = first + looked - 1 < final and 1 or 0
reply[2], reply[3] = redis.call("ZSCORE", index, found[looked]), found[looked]
return reply
