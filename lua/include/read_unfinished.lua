--- @include "keys"
-- The attempts of an event that an interrupted put left unfinished: PENDING, but in no index or without a body. Else
-- nil, also if its keys differ from those of `own`, the options of this put. (A put is interrupted when a permission
-- is taken away while it runs.)
local function read_unfinished(id, body, own)
  local state, ordering, unique, attempts, earlier_attempts, expiries = unpack(redis.call("HMGET", event_key .. id,
    "state", "ordering_key", "unique_key", "attempts", "earlier_attempts", "expiries"))
  if state ~= "PENDING" or ordering and ordering ~= (own and own.ordering)
    or unique and unique ~= (own and own.unique) then
    return nil
  end
  local indexed = redis.call("ZSCORE", key.pending, id) or redis.call("ZSCORE", key.waiting, id)
    or redis.call("ZSCORE", key.suspect, id)
  if indexed and body then
    return nil
  end
  redis.call("ZCARD", key.retries)
  return { attempts = attempts, earlier_attempts = earlier_attempts, expiries = expiries }
end
