--- @include "keys"
-- What an interrupted put left of an event that exists: its attempts when it is PENDING, but in no index or without a
-- body; else nil, also when its keys are not those of `own`, the options of this put. A permission that is taken away
-- ends a script in the middle.
local function unfinished(id, body, own)
  local event = redis.call("HMGET", event_key .. id, "state", "ordering_key", "unique_key", "attempts",
    "earlier_attempts", "expiries")
  if event[1] ~= "PENDING" or event[2] and event[2] ~= (own and own.ordering)
    or event[3] and event[3] ~= (own and own.unique) then
    return nil
  end
  local indexed = redis.call("ZSCORE", key.pending, id) or redis.call("ZSCORE", key.waiting, id)
    or redis.call("ZSCORE", key.suspect, id)
  if indexed and body then
    return nil
  end
  redis.call("ZCARD", key.retries)
  return { attempts = event[4], earlier_attempts = event[5], expiries = event[6] }
end
