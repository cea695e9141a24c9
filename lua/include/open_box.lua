--- @include "keys"
--- @include "as_number"
-- Reads the box's settings. The second result is the error to return when this version does not understand the box.
-- A box that does not exist yet has the default settings; `exists` tells.
local LAYOUT = 1
local function open_box()
  local meta = redis.call("HMGET", key.meta, "layout", "paused", "dead_head", "max_pending", "keep_published",
    "longest_lease")
  if meta[1] and (tonumber(meta[1]) or math.huge) > LAYOUT then
    return nil, redis.error_reply("NEWERLAYOUT this box has layout " .. meta[1] .. ", and this redbox knows layouts up to "
      .. LAYOUT .. "; upgrade redbox")
  end
  return {
    exists = meta[1],
    paused = meta[2],
    blocks = meta[3] == "block",
    max_pending = as_number(meta[4]),
    deletes = meta[5] == "0",
    longest_lease = as_number(meta[6]),
  }
end
