--- @include "keys"
-- Writes the fields of a repaired event that differ from those that were stored.
local function write_fields(item)
  local hash = event_key .. item.id
  for name, value in pairs(item.fields) do
    if item.before[name] ~= value then
      redis.call("HSET", hash, name, value)
    end
  end
  for name in pairs(item.before) do
    if item.fields[name] == nil then
      redis.call("HDEL", hash, name)
    end
  end
end
