--- @include "keys"
-- Adds to `keys` those that hold an event: what goes when it is erased.
local function parts(id, keys)
  keys[#keys + 1] = event_key .. id
  keys[#keys + 1] = body_key .. id
  keys[#keys + 1] = history_key .. id
end
