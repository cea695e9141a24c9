#!lua flags=no-writes
-- examine: reads everything that the rules about one event need, also for an id without an event.
--
-- Guarantee: changes nothing. The view of each event is consistent, also while relays are running.
--
-- KEYS[1]   meta     hash; names the box
-- ARGV[1]   id       then further ids
--
-- Returns   {claim numbers and places in lines given out so far, event...}: each {id, {field, value...},
--           {score or false in pending, waiting, suspect, claimed, published, dead, retries, lost}, bytes of its body,
--           length of its history, place in its line or false, head of its line or false, unique score or false,
--           end of the pause of its ordering key or false}
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "open_box"
--- @include "as_number"

local SORTED_SETS = { "pending", "waiting", "suspect", "claimed", "published", "dead", "retries", "lost" }
local _, refusal = open_box()
if refusal then
  return refusal
end
local claims, places = unpack(redis.call("HMGET", key.counters, "claimed", "seq"))
local reply, found = { as_number(claims), as_number(places) }, {}
for i, index in ipairs(SORTED_SETS) do
  found[i] = redis.call("ZMSCORE", key[index], unpack(ARGV))
end
for at = 1, #ARGV do
  local id, scores = ARGV[at], {}
  for i = 1, #SORTED_SETS do
    scores[i] = found[i][at]
  end
  local fields = redis.call("HGETALL", event_key .. id)
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
  reply[#reply + 1] = {
    id,
    fields,
    scores,
    redis.call("STRLEN", body_key .. id),
    redis.call("LLEN", history_key .. id),
    place,
    head,
    unique,
    paused,
  }
end
return reply
