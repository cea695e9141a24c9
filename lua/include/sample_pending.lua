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
  for i = 1, limit do
    local rank = i > 1 and i == limit and "0" or format_integer(last - math.floor((i - 1) * step))
    ids[i] = redis.call("ZRANGE", key.pending, rank, rank)[1]
  end
  return ids
end
