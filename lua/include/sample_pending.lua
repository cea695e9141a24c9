--- @include "keys"
--- @include "format_integer"
-- The ids of up to `limit` pending events that are available by `due`: the newest, the oldest, and others at equal
-- distances between them.
local function sample_pending(due, limit)
  local last = redis.call("ZCOUNT", key.pending, "-inf", due) - 1
  if last < limit then
    return redis.call("ZRANGEBYSCORE", key.pending, "-inf", due)
  end
  local step, ids = last / math.max(1, limit - 1), {}
  for position = 1, limit do
    local rank = position > 1 and position == limit and "0" or format_integer(last - math.floor((position - 1) * step))
    ids[position] = redis.call("ZRANGE", key.pending, rank, rank)[1]
  end
  return ids
end
