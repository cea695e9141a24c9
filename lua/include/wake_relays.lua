--- @include "keys"
--- @include "send_hint"
-- Wakes up to 100 idle relays: they should act on a change of the box now, not at their next look.
local RELAYS_WOKEN = 100
local function wake_relays()
  for _ = redis.call("LLEN", key.wake) + 1, math.min(redis.call("ZCARD", key.relays), RELAYS_WOKEN) do
    redis.call("RPUSH", key.wake, "1")
  end
  soonest = 0
  send_hint()
end
