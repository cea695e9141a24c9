--- @include "keys"
--- @include "as_number"
-- Reads the settings of the box. The second result is the error to return if this version does not understand the
-- box. A box that does not exist yet has the default settings, and `exists` is false.
local LAYOUT = 1
local function open_box()
  local layout, paused, dead_head, max_pending, keep_published, longest_lease = unpack(redis.call("HMGET", key.meta,
    "layout", "paused", "dead_head", "max_pending", "keep_published", "longest_lease"))
  if layout and (tonumber(layout) or math.huge) > LAYOUT then
    return nil, redis.error_reply("NEWERLAYOUT this box has layout " .. layout
      .. ", and this redbox knows layouts up to " .. LAYOUT .. "; upgrade redbox")
  end
  return {
    exists = layout,
    paused = paused,
    blocks = dead_head == "block",
    max_pending = as_number(max_pending),
    deletes = keep_published == "0",
    longest_lease = as_number(longest_lease),
  }
end
