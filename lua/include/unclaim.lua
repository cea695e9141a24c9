--- @include "keys"
-- Ends a claim: the event's claim fields go, and its place in claimed.
local function unclaim(id)
  redis.call("HDEL", event_key .. id, "claimed_at", "claimed_by", "company", "exhausted")
  redis.call("ZREM", key.claimed, id)
end
