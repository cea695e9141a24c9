#!lua flags=no-writes
-- split_index: splits an index into ranges that can be read in parallel.
--
-- Guarantee: changes nothing. Together the ranges hold everything that is in the index now, within since and until.
--
-- KEYS[1]   meta     hash; names the box
-- ARGV[1]   index    pending | waiting | suspect | claimed | published | dead | retries | lost | blocked |
--                    paused
-- ARGV[2]   since    lowest score, ms; "" for any
-- ARGV[3]   until    highest score, ms; "" for any
-- ARGV[4]   score    the position to begin after; "" for the beginning
-- ARGV[5]   id       of that position
-- ARGV[6]   size     events per range
-- ARGV[7]   ranges   maximum number; the rest of the index is left out
--
-- Returns   {now, claims made so far, number of events, score, id...}: the last position of each range, in order
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "now_ms"
--- @include "open_box"
--- @include "find_first_rank"
--- @include "as_number"

local index, since, latest, score, id = key[ARGV[1]], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local size, ranges = tonumber(ARGV[6]), tonumber(ARGV[7])
local _, refusal = open_box()
if refusal then
  return refusal
end
local first = find_first_rank(index, since, score, id)
local last = redis.call("ZCOUNT", index, "-inf", latest ~= "" and latest or "+inf") - 1
last = math.min(last, first + size * ranges - 1)
local claims = as_number(redis.call("HGET", key.counters, "claimed"))
local reply = { now_ms(), claims, math.max(0, last - first + 1) }
while first <= last do
  local rank = math.min(first + size - 1, last)
  local position = redis.call("ZRANGE", index, rank, rank, "WITHSCORES")
  reply[#reply + 1] = position[2]
  reply[#reply + 1] = position[1]
  first = rank + 1
end
return reply
