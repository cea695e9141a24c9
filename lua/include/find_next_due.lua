--- @include "keys"
--- @include "is_suspect_claimed"
-- When there is something to claim next: the oldest that is left, unless it is a suspect that has to wait for another.
local function find_next_due()
  local first = redis.call("ZRANGE", key.pending, "0", "0", "WITHSCORES")[2]
  local alone = redis.call("ZRANGE", key.suspect, "0", "0", "WITHSCORES")[2]
  if alone and (not first or tonumber(alone) < tonumber(first)) and not is_suspect_claimed() then
    first = alone
  end
  return tonumber(first or -1)
end
