--- @include "keys"
--- @include "leave_line"
-- Moves ids without a complete event to lost: each {id, the line to leave or false}.
local function move_to_lost(lost, now)
  for _, item in ipairs(lost) do
    redis.call("ZADD", key.lost, now, item[1])
    redis.call("ZREM", key.retries, item[1])
    if item[2] then
      leave_line(item[1], item[2], now)
    end
  end
end
