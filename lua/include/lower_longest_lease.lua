--- @include "keys"
--- @include "format_integer"
-- Lowers the longest lease of the box when every lease in use ends within half of it, so that one long lease does
-- not count forever. Half, and whole seconds, so that meta rarely changes: transactions watch it.
local function lower_longest_lease(longest, now)
  local last = redis.call("ZRANGE", key.claimed, "-1", "-1", "WITHSCORES")[2]
  if not last then
    redis.call("HDEL", key.meta, "longest_lease")
    return
  end
  local left = math.max(1, math.ceil((tonumber(last) - now) / 1000)) * 1000
  if 2 * left <= longest then
    redis.call("HSET", key.meta, "longest_lease", format_integer(left))
  end
end
