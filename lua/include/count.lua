--- @include "keys"
--- @include "whole"
-- Adds to one of the box's lifetime totals.
local function count(total, by)
  if by > 0 then
    redis.call("HINCRBY", key.counters, total, whole(by))
  end
end
