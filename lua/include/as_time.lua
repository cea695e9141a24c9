--- @include "as_number"
-- A time in ms that is stored in a hash or as a score; 0 without a value, for any other text, and for a time that is
-- later than the year 9999, which no event can have.
local LAST_MS = 253370764800000
local function as_time(text)
  local ms = as_number(text)
  return ms <= LAST_MS and ms or 0
end
