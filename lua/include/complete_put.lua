--- @include "keys"
--- @include "format_integer"
--- @include "as_number"
--- @include "enqueue"
-- Completes an event that an interrupted put left unfinished; the caller writes its body. The event keeps its
-- attempts, and its place in its line if it has one: others may wait behind it.
local function complete_put(id, tried, expiries, own, available_at, now)
  local hash = event_key .. id
  redis.call("HSET", hash, "available_at", available_at, "due_at", available_at)
  if own and own.created then
    redis.call("HSET", hash, "created_at", own.created, "restored_at", now)
  end
  if own and own.ordering and not redis.call("ZSCORE", line_key .. own.ordering, id) then
    local seq = format_integer(redis.call("HINCRBY", key.counters, "seq", "1"))
    redis.call("HSET", hash, "ordering_key", own.ordering, "seq", seq)
    redis.call("ZADD", line_key .. own.ordering, seq, id)
  end
  if own and own.unique then
    redis.call("HSET", hash, "unique_key", own.unique, "unique_scope", own.scope)
  end
  enqueue(id, available_at, tried, as_number(expiries), own and own.ordering, own and own.unique)
end
