#!lua flags=no-writes
-- read_states: reads events by id with index and history, but without their bodies, which never change.
--
-- Guarantee: changes nothing. Each event is consistent in itself. Ids without an event are left out.
--
-- KEYS[1]   meta      hash; names the box
-- ARGV[1]   id        then further ids
--
-- Returns   for each event {id, {field, value...}, index, score, history}
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "open_box"
--- @include "list_indexes"

local _, refusal = open_box()
if refusal then
  return refusal
end
local reply = {}
for at = 1, #ARGV do
  local id = ARGV[at]
  for _, index in ipairs(list_indexes(redis.call("HGET", event_key .. id, "state"))) do
    local score = redis.call("ZSCORE", key[index], id)
    if score then
      reply[#reply + 1] =
        { id, redis.call("HGETALL", event_key .. id), index, score, redis.call("LRANGE", history_key .. id, 0, -1) }
      break
    end
  end
end
return reply
