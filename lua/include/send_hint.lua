--- @include "keys"
-- Wakes one idle relay if an event that this script made available is due before all other pending events. It is
-- only a hint: a relay that misses it finds the event by itself. One token is enough for many events: a relay that
-- leaves some behind sends the next hint.
local soonest = math.huge
local function send_hint()
  if soonest == math.huge then
    return
  end
  local first = redis.call("ZRANGE", key.pending, "0", "0", "WITHSCORES")[2]
  if (not first or soonest <= tonumber(first)) and redis.call("LLEN", key.wake) == 0 then
    redis.call("RPUSH", key.wake, "1")
  end
end
