--- @include "keys"
-- The attempts of an event that an interrupted put left unfinished: PENDING, but in no index or without a body. Else
-- nil, also if its fields differ from those of the put at this offset in ARGV, whose options are `own`; the second
-- result names the first that does. (A put is interrupted when a permission is taken away while it runs: then its keys
-- may be missing. In other states they are complete.)
local function read_unfinished(at, body, own)
  local id = ARGV[at]
  local state, event_type, ordering, unique, attempts, earlier_attempts, expiries = unpack(redis.call("HMGET",
    event_key .. id, "state", "event_type", "ordering_key", "unique_key", "attempts", "earlier_attempts", "expiries"))
  local complete = state ~= "PENDING"
  if not body and event_type ~= ARGV[at + 1] then
    return nil, "event_type"
  elseif (ordering or complete) and ordering ~= (own and own.ordering or false) then
    return nil, "ordering_key"
  elseif (unique or complete) and unique ~= (own and own.unique or false) then
    return nil, "unique_key"
  elseif complete then
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
