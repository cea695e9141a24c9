--- @include "keys"
-- The live event that holds a unique key against a put with this scope, or false. ALL_LIVE: any live event.
-- UNTOUCHED: one that is scheduled or available, that is, never attempted (score 0) or due again after a retry.
local function find_unique_holder(unique, scope, now)
  local upto = scope == "UNTOUCHED" and now or "+inf"
  return redis.call("ZRANGEBYSCORE", unique_key .. unique, "-inf", upto, "LIMIT", 0, 1)[1]
end
