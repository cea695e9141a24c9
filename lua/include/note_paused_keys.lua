--- @include "keys"
--- @include "open_box"
-- Notes in meta when the first pause of an ordering key ends, after a change of `paused`. So scripts look at `paused`
-- only if some key is paused. Writes meta only if that changes: transactions watch it.
local function note_paused_keys()
  local first = redis.call("ZRANGE", key.paused, "0", "0", "WITHSCORES")[2]
  local ends = first and (tonumber(first) or math.huge)
  if first and ends ~= keys_paused then
    redis.call("HSET", key.meta, "keys_paused", first)
  elseif not first and keys_paused then
    redis.call("HDEL", key.meta, "keys_paused")
  end
  keys_paused = ends or false
end
