--- @include "as_number"
-- When the pause of the box ends, in ms: 0 if it lasts until the box is resumed. The second result is since when it
-- lasts, nil if an earlier version of redbox made it. `paused` is the field of meta: since and until in ms, as in
-- "1700000000000-1700000600000" or "1700000000000-". Earlier versions wrote "1".
local function find_pause_end(paused)
  local since, ends = string.match(paused, "^(%d+)%-(%d*)$")
  return as_number(ends), since
end
