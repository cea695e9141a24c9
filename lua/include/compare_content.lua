--- @include "keys"
--- @include "format_integer"
-- The reply of put for an id that exists: "EXISTS" if the event at this place of ARGV has the same content, else
-- "DIFFERS" and the body that exists. `there` is that body, or false for the stored one, of which no more is read than
-- the new one is long. The reply leaves out a large body, and further ones when the bodies in it are large together.
local TELLABLE = 65536
local TELLABLE_IN_ALL = 1048576
local told = 0
local function compare_content(at, there)
  local size, id = tonumber(ARGV[at + 3]), ARGV[at]
  local content = there and string.sub(there, 1, size) or redis.call("GETRANGE", body_key .. id, "0", format_integer(size - 1))
  if content == string.sub(ARGV[at + 2], 1, size) then
    return "EXISTS"
  end
  local length = there and #there or redis.call("STRLEN", body_key .. id)
  if length > TELLABLE or told + length > TELLABLE_IN_ALL then
    return { "DIFFERS", "" }
  end
  told = told + length
  return { "DIFFERS", there or redis.call("GET", body_key .. id) or "" }
end
