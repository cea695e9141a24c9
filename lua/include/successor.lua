--- @include "keys"
-- Adds to `keys` what is written when the head of a line leaves: the line, and the event that follows.
local function successor(ordering_key, keys)
  local line = line_key .. ordering_key
  keys[#keys + 1] = line
  local following = redis.call("ZRANGE", line, 1, 1)[1]
  if following then
    keys[#keys + 1] = event_key .. following
  end
end
