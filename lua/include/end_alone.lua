--- @include "keys"
-- A relay that was given one event alone, and still holds it, is about to get more: its expiry would prove nothing any
-- more. `id` is "" when there is no such event.
local function end_alone(id, relay)
  if id == "" then
    return
  end
  local event = redis.call("HMGET", event_key .. id, "alone", "claimed_by", "state")
  if event[1] and event[2] == relay and event[3] == "CLAIMED" then
    redis.call("HDEL", event_key .. id, "alone")
  end
end
