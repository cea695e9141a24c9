#!lua flags=no-writes
-- list_ids: the ids of a range of an index, in order, a step at a time.
--
-- Guarantee: changes nothing; bounded in work.
--
-- KEYS[1]   meta       hash; names the box
-- ARGV[1]   index      pending | waiting | suspect | claimed | published | dead | retries | lost | blocked
-- ARGV[2]   score      the place to begin after; "" for the beginning
-- ARGV[3]   id         of that place
-- ARGV[4]   last       score of the last place, itself included
-- ARGV[5]   last_id    of that place
-- ARGV[6]   since      lowest score, ms; "" for any
-- ARGV[7]   limit      how many events to look at; one whose type takes more work to match counts as several
-- ARGV[8]   event_type glob; "" for any
--
-- Returns   {1 when there may be more, score, id, id...}: the place to go on after, then the ids
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "open_box"
--- @include "rank_after"
--- @include "glob"

local index, limit, pattern = key[ARGV[1]], tonumber(ARGV[7]), ARGV[8]
local _, refusal = open_box()
if refusal then
  return refusal
end
local first = ARGV[6] ~= "" and redis.call("ZCOUNT", index, "-inf", "(" .. ARGV[6]) or 0
if ARGV[2] ~= "" then
  first = math.max(first, rank_after(index, ARGV[2], ARGV[3]))
end
local final = rank_after(index, ARGV[4], ARGV[5]) - 1
local last = math.min(first + limit - 1, final)
if last < first then
  return { 0, ARGV[2], ARGV[3] }
end
local found = redis.call("ZRANGE", index, first, last)
local matches, cost = glob(pattern)
local reply, work, looked = { 0, "", "" }, 0, #found
for at, id in ipairs(pattern ~= "" and found or {}) do
  local event_type = redis.call("HGET", event_key .. id, "event_type") or ""
  if matches(event_type) then
    reply[#reply + 1] = id
  end
  work = work + 1 + cost(event_type)
  if work >= limit then
    looked = at
    break
  end
end
if pattern == "" then
  for at, id in ipairs(found) do
    reply[3 + at] = id
  end
end
reply[1] = first + looked - 1 < final and 1 or 0
reply[2], reply[3] = redis.call("ZSCORE", index, found[looked]), found[looked]
return reply
