--- @include "call_with_events"
-- Removes events whole. Their places in indexes, lines and unique sets are the caller's to clear.
local function erase_events(ids)
  call_with_events("UNLINK", ids)
end
