--- @include "keys"
--- @include "as_number"
--- @include "format_integer"
-- How many more claims max_in_flight allows now, below 0 if it was lowered; nil if there is no such limit, or if it is
-- damaged. A claim whose lease has ended takes up no place, also before it is reaped: nobody may be left to reap it.
local function count_places(settings, now)
  local most = as_number(settings.max_in_flight)
  if most == 0 then
    return nil
  end
  return most - redis.call("ZCOUNT", key.claimed, "(" .. format_integer(now), "+inf")
end
