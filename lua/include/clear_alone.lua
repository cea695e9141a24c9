--- @include "keys"
--- @include "read_event"
-- A relay that was given one event alone, and still holds it, is about to get more: its expiry would prove nothing any
-- more. `id` is "" when there is no such event.
local function clear_alone(id, relay)
  if id == "" then
    return
  end
  local event = read_event(id, { "alone", "claimed_by", "state" })
  if event.alone and event.claimed_by == relay and event.state == "CLAIMED" then
    redis.call("HDEL", event_key .. id, "alone")
  end
end
