--- @include "keys"
--- @include "advance_line"
-- Removes an event from its line. If it was the head, the next event becomes the head.
local function leave_line(id, ordering_key, now)
  local was_head = redis.call("ZRANGE", line_key .. ordering_key, "0", "0")[1] == id
  redis.call("ZREM", line_key .. ordering_key, id)
  if was_head then
    redis.call("ZREM", key.blocked, ordering_key)
    advance_line(ordering_key, now)
  end
end
