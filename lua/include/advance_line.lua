--- @include "keys"
--- @include "enqueue"
--- @include "tries"
--- @include "as_number"
--- @include "moment"
-- Makes the first event of a line its head: it moves from waiting to where claims look. An id without an event is
-- moved to lost, and the next one is taken.
local function advance_line(ordering_key, now)
  while true do
    local id = redis.call("ZRANGE", line_key .. ordering_key, "0", "0")[1]
    if not id then
      return
    end
    local event = redis.call("HMGET", event_key .. id, "created_at", "available_at", "attempts", "expiries",
      "earlier_attempts")
    redis.call("ZREM", key.waiting, id)
    if event[1] then
      local available_at = moment(event[2], event[1], now)
      enqueue(id, available_at, tries(event[3], event[5]), as_number(event[4]), ordering_key, false)
      return
    end
    redis.call("ZREM", line_key .. ordering_key, id)
    redis.call("ZREM", key.retries, id)
    redis.call("ZADD", key.lost, now, id)
  end
end
