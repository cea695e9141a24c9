--- @include "keys"
--- @include "read_event"
--- @include "count_attempts"
--- @include "as_number"
--- @include "read_available_at"
-- Adds an event to its line: at its earlier place `seq`, or at the tail if there is none. A dead head that is still
-- in its line keeps its place. An event never passes a head that was attempted or is not PENDING: it joins the tail
-- instead.
local function join_line(id, ordering_key, seq, now)
  local line = line_key .. ordering_key
  if redis.call("ZSCORE", line, id) then
    redis.call("ZREM", key.blocked, ordering_key)
    return
  end
  local own, head = as_number(seq), redis.call("ZRANGE", line, 0, 0, "WITHSCORES")
  if own > 0 and head[1] and own < tonumber(head[2]) then
    local event = read_event(head[1], { "attempts", "available_at", "created_at", "earlier_attempts", "state" })
    if event.state == "PENDING" and count_attempts(event.attempts, event.earlier_attempts) == 0 then
      redis.call("ZREM", key.pending, head[1])
      redis.call("ZREM", key.suspect, head[1])
      redis.call("ZADD", key.waiting, read_available_at(event.available_at, event.created_at, now), head[1])
    else
      own = 0
    end
  end
  if own == 0 then
    own = redis.call("HINCRBY", key.counters, "seq", 1)
    redis.call("HSET", event_key .. id, "seq", own)
  end
  redis.call("ZADD", line, own, id)
end
