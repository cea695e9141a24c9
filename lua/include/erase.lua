--- @include "keys"
-- Removes an event whole. Its places in indexes, line and unique set are the caller's to clear.
local function erase(id)
  redis.call("UNLINK", event_key .. id, body_key .. id, history_key .. id)
end
