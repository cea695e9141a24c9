--- @include "keys"
--- @include "as_number"
-- Reads the settings of the box. The second result is the error to return if this version does not understand the
-- box. A box that does not exist yet has the default settings, and `exists` is false. `keys_paused` is when the first
-- pause of an ordering key ends, in ms; math.huge if none ends by itself, and false if no key is paused.
local LAYOUT = 1
local keys_paused = false
local function open_box()
  local layout, paused, dead_head, max_pending, keep_published, longest_lease, ramp, first_end, max_rate, max_in_flight = unpack(redis.call(
    "HMGET", key.meta, "layout", "paused", "dead_head", "max_pending", "keep_published", "longest_lease", "ramp",
    "keys_paused", "max_rate", "max_in_flight"))
  if layout and (tonumber(layout) or math.huge) > LAYOUT then
    return nil, redis.error_reply("NEWERLAYOUT this box has layout " .. layout
      .. ", and this redbox knows layouts up to " .. LAYOUT .. "; upgrade redbox")
  end
  keys_paused = first_end and (tonumber(first_end) or math.huge)
  return {
    exists = layout,
    paused = paused,
    blocks = dead_head == "block",
    max_pending = as_number(max_pending),
    deletes = keep_published == "0",
    longest_lease = as_number(longest_lease),
    ramp = ramp,
    max_rate = max_rate,
    max_in_flight = max_in_flight,
  }
end
