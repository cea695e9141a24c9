--- @include "call_with_events"
-- Removes all keys of these events. The caller removes their ids from indexes, lines and unique keys.
local function erase_events(ids)
  call_with_events("UNLINK", ids)
end
