--- @include "keys"
--- @include "format_integer"
-- Reads a line, and the event that becomes its head after `leaving` of its events have left.
local function check_line_keys(ordering_key, leaving)
  local following = redis.call("ZRANGE", line_key .. ordering_key, format_integer(leaving), format_integer(leaving))[1]
  if following then
    redis.call("HLEN", event_key .. following)
  end
end
