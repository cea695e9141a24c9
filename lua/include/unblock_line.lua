--- @include "keys"
--- @include "leave_line"
-- Unblocks a line whose head is dead, for the dead-head policy "skip": the head leaves it.
local function unblock_line(ordering_key, now)
  redis.call("ZREM", key.blocked, ordering_key)
  local head = redis.call("ZRANGE", line_key .. ordering_key, 0, 0)[1]
  if head and redis.call("ZSCORE", key.dead, head) then
    leave_line(head, ordering_key, now)
  end
end
