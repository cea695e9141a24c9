--- @include "keys"
-- The whole event: {id, fields and values, body, end of its lease, waiting | suspect | "", history}, or nil.
local function describe_event(id)
  local fields = redis.call("HGETALL", event_key .. id)
  if #fields == 0 then
    return nil
  end
  local index = redis.call("ZSCORE", key.waiting, id) and "waiting"
    or redis.call("ZSCORE", key.suspect, id) and "suspect"
  return {
    id,
    fields,
    redis.call("GET", body_key .. id),
    redis.call("ZSCORE", key.claimed, id),
    index or "",
    redis.call("LRANGE", history_key .. id, 0, -1),
  }
end
