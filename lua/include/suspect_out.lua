--- @include "keys"
-- Whether a suspect is out: the claim noted in `alone` still holds its event. Nothing has to be cleared in time.
local function suspect_out()
  local number, id = string.match(redis.call("GET", key.alone) or "", "^(%d+) (.*)$")
  if not id then
    return false
  end
  local event = redis.call("HMGET", event_key .. id, "state", "claim")
  return event[1] == "CLAIMED" and event[2] == number
end
