--- @include "keys"
--- @include "format_integer"
--- @include "add_history"
-- Writes the optional fields of a new event: its available_at, its place in a line, its unique key. An event
-- restored from an archive keeps its created_at; restored_at and its history record when it was restored.
local function write_options(id, hash, own, available_at, now)
  if own.created then
    redis.call("HSET", hash, "created_at", own.created, "restored_at", now)
    add_history(id, now, "0", "replayed", "", "restored from an archive")
  end
  if own.created or available_at ~= now then
    redis.call("HSET", hash, "available_at", available_at, "due_at", available_at)
  end
  if own.ordering then
    local seq = format_integer(redis.call("HINCRBY", key.counters, "seq", "1"))
    redis.call("HSET", hash, "ordering_key", own.ordering, "seq", seq)
    redis.call("ZADD", line_key .. own.ordering, seq, id)
  end
  if own.unique then
    redis.call("HSET", hash, "unique_key", own.unique, "unique_scope", own.scope)
  end
end
