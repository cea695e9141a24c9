--- @include "keys"
--- @include "open_box"
-- Reads from `paused` itself when the first pause of an ordering key ends: a box whose meta lost that has no pauses for
-- other scripts. Returns what meta says, and whether that is wrong. To correct meta, give `keys_paused` the first result
-- again, and call note_paused_keys.
local function read_paused_keys()
  local noted, first = keys_paused, redis.call("ZRANGE", key.paused, 0, 0, "WITHSCORES")[2]
  keys_paused = first and (tonumber(first) or math.huge) or false
  return noted, noted ~= keys_paused
end
