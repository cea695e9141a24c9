--- @include "keys"
--- @include "read_event"
--- @include "enqueue"
--- @include "count_attempts"
--- @include "as_number"
--- @include "read_available_at"
-- Makes the first event of a line its head: moves it from waiting to pending or suspect. An id without an event is
-- moved to lost, and the next one becomes the head.
local HEAD_FIELDS = { "created_at", "available_at", "attempts", "expiries", "earlier_attempts" }
local function advance_line(ordering_key, now)
  while true do
    local id = redis.call("ZRANGE", line_key .. ordering_key, "0", "0")[1]
    if not id then
      return
    end
    local event = read_event(id, HEAD_FIELDS)
    redis.call("ZREM", key.waiting, id)
    if event.created_at then
      local available_at = read_available_at(event.available_at, event.created_at, now)
      local tried = count_attempts(event.attempts, event.earlier_attempts)
      enqueue(id, available_at, tried, as_number(event.expiries), ordering_key, false)
      return
    end
    redis.call("ZREM", line_key .. ordering_key, id)
    redis.call("ZREM", key.retries, id)
    redis.call("ZADD", key.lost, now, id)
  end
end
