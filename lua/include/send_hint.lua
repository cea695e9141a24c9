--- @include "keys"
-- Wakes one idle relay when what this script made available comes before everything else that waits. Only a hint: a
-- relay that misses it finds the event by itself. One token is enough, however many events there are: a relay that
-- leaves some behind hints again.
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
