--- @include "keys"
-- The id of the live event that holds a unique key against a put with this scope, or nil. ALL_LIVE: any live event.
-- UNTOUCHED: one that was never attempted (score 0), or is due again after a retry.
local function find_unique_holder(unique, scope, now)
  local upto = scope == "UNTOUCHED" and now or "+inf"
  return redis.call("ZRANGEBYSCORE", unique_key .. unique, "-inf", upto, "LIMIT", 0, 1)[1]
end
