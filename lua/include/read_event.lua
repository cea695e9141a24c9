--- @include "keys"
-- Reads fields of an event, by name: `event.state`. A field that the event does not have is false. Using a field
-- that was not read is an error. `fields` is a list of names; pass the same table each time.
local function read_event(id, fields)
  if not fields.__index then
    local offsets = {}
    for i, name in ipairs(fields) do
      offsets[name] = i
    end
    fields.__index = function(values, name)
      return values[offsets[name] or error("the field " .. name .. " was not read")]
    end
  end
  return setmetatable(redis.call("HMGET", event_key .. id, unpack(fields)), fields)
end
