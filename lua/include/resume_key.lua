--- @include "keys"
--- @include "advance_line"
-- Ends the pause of an ordering key: the head of its line can be claimed again, unless it is CLAIMED or DEAD.
local function resume_key(ordering_key, now)
  redis.call("ZREM", key.paused, ordering_key)
  redis.call("HDEL", key.pauses, ordering_key)
  local head = redis.call("ZRANGE", line_key .. ordering_key, "0", "0")[1]
  if head and redis.call("ZSCORE", key.waiting, head) then
    advance_line(ordering_key, now)
  end
end
