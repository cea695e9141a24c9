--- @include "keys"
-- Calls `command` with all keys of these events, a thousand events at a time. EXISTS checks events before they are
-- erased: a cluster slot that is moving away then fails here, before the first write.
local function call_with_events(command, ids)
  for first = 1, #ids, 1000 do
    local all = {}
    for at = first, math.min(first + 999, #ids) do
      local id, last = ids[at], #all
      all[last + 1], all[last + 2], all[last + 3] = event_key .. id, body_key .. id, history_key .. id
    end
    redis.call(command, unpack(all))
  end
end
