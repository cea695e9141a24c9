--- @include "keys"
--- @include "read_event"
-- Clears the mark `alone` of the one event that this relay holds, because the relay is about to get more: an expired
-- lease then proves nothing against that event. `id` is "" if there is no such event.
local function clear_alone(id, relay)
  if id == "" then
    return
  end
  local event = read_event(id, { "alone", "claimed_by", "state" })
  if event.alone and event.claimed_by == relay and event.state == "CLAIMED" then
    redis.call("HDEL", event_key .. id, "alone")
  end
end
