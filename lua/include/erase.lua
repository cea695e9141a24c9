--- @include "with_events"
-- Removes events whole. Their places in indexes, lines and unique sets are the caller's to clear.
local function erase(ids)
  with_events("UNLINK", ids)
end
