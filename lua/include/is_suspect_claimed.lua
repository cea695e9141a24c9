--- @include "keys"
--- @include "read_event"
-- Whether a suspect is claimed now: the claim noted in `alone` still holds its event. The note never has to be
-- removed.
local function is_suspect_claimed()
  local number, id = string.match(redis.call("GET", key.alone) or "", "^(%d+) (.*)$")
  if not id then
    return false
  end
  local event = read_event(id, { "state", "claim" })
  return event.state == "CLAIMED" and event.claim == number
end
