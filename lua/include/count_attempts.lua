--- @include "as_number"
-- The number of attempts since the event was put, or replayed with its attempts excused.
local function count_attempts(attempts, earlier_attempts)
  return as_number(attempts) - as_number(earlier_attempts)
end
