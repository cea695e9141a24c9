#!lua flags=no-writes
-- examine: reads everything that the rules about one event need, also for an id without an event.
--
-- Guarantee: changes nothing. The view of each event is consistent, also while relays are running.
--
-- KEYS[1]   meta     hash; names the box
-- ARGV[1]   bytes    of bodies to read at most; 0 for none
-- ARGV[2]   id       then further ids
--
-- Returns   {claim numbers and places in lines given out so far, then columns with a value for each id:
--           for each of pending, waiting, suspect, claimed, published, dead, retries, lost {score or false}, or false
--           for an empty one; {{field, value...}}; {bytes of the body}; {length of the history};
--           {body, or false if it was not read}; and at last {number of the id, place in its line or false, head of its
--           line or false, unique score or false, end of the pause of its ordering key or false} for each id whose
--           event has one of these keys}
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "open_box"
--- @include "as_number"

local most = tonumber(ARGV[1])
local SORTED_SETS = { "pending", "waiting", "suspect", "claimed", "published", "dead", "retries", "lost" }
local _, refusal = open_box()
if refusal then
  return refusal
end
local claims, places = unpack(redis.call("HMGET", key.counters, "claimed", "seq"))
local reply = { as_number(claims), as_number(places) }
for _, index in ipairs(SORTED_SETS) do
  reply[#reply + 1] = redis.call("ZCARD", key[index]) > 0 and redis.call("ZMSCORE", key[index], unpack(ARGV, 2))
end
local events, sizes, histories, bodies, keyed = {}, {}, {}, {}, {}
local small, small_rows = {}, {}
for at = 2, #ARGV do
  local id, row = ARGV[at], at - 1
  local fields, size = redis.call("HGETALL", event_key .. id), redis.call("STRLEN", body_key .. id)
  events[row], sizes[row], bodies[row] = fields, size, false
  histories[row] = redis.call("LLEN", history_key .. id)
  if size > 0 and size <= most then
    most = most - size
    small[#small + 1], small_rows[#small + 1] = body_key .. id, row
  end
  local place, head, unique, paused = false, false, false, false
  for field = 1, #fields, 2 do
    if fields[field] == "ordering_key" then
      local line = line_key .. fields[field + 1]
      place, head = redis.call("ZSCORE", line, id), redis.call("ZRANGE", line, 0, 0)[1] or false
      paused = redis.call("ZSCORE", key.paused, fields[field + 1])
    elseif fields[field] == "unique_key" then
      unique = redis.call("ZSCORE", unique_key .. fields[field + 1], id)
    end
  end
  if place or head or unique or paused then
    keyed[#keyed + 1] = { row, place, head, unique, paused }
  end
end
if #small > 0 then
  for i, body in ipairs(redis.call("MGET", unpack(small))) do
    bodies[small_rows[i]] = body
  end
end
for _, column in ipairs({ events, sizes, histories, bodies, keyed }) do
  reply[#reply + 1] = column
end
return reply
