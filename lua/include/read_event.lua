--- @include "keys"
-- Reads fields of an event, which the result then has by name: `event.state`. A field that the event does not have is
-- false; asking for one that was not read is an error. `fields` is the list of names, the same table for every call.
local function read_event(id, fields)
  if not fields.__index then
    local positions = {}
    for position, name in ipairs(fields) do
      positions[name] = position
    end
    fields.__index = function(values, name)
      return values[positions[name] or error("the field " .. name .. " was not read")]
    end
  end
  return setmetatable(redis.call("HMGET", event_key .. id, unpack(fields)), fields)
end
