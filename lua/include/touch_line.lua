--- @include "keys"
--- @include "whole"
-- Looks at a line, and at the event that becomes its head when this many of its events have left.
local function touch_line(ordering_key, leaving)
  local following = redis.call("ZRANGE", line_key .. ordering_key, whole(leaving), whole(leaving))[1]
  if following then
    redis.call("HLEN", event_key .. following)
  end
end
