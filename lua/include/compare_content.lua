--- @include "keys"
--- @include "format_integer"
-- The reply of put for an id that exists: "EXISTS" if the event at this offset in ARGV has the same content, else
-- "DIFFERS" and the existing body. `existing` is that body, or false if it is stored: then only as much of it is
-- read as the new content is long. The reply leaves out a large body, and further bodies once those in it are large
-- together.
local LARGE = 65536
local LARGE_TOGETHER = 1048576
local replied_bytes = 0
local function compare_content(at, existing)
  local size, id = tonumber(ARGV[at + 3]), ARGV[at]
  local content = existing and string.sub(existing, 1, size)
    or redis.call("GETRANGE", body_key .. id, "0", format_integer(size - 1))
  if content == string.sub(ARGV[at + 2], 1, size) then
    return "EXISTS"
  end
  local length = existing and #existing or redis.call("STRLEN", body_key .. id)
  if length > LARGE or replied_bytes + length > LARGE_TOGETHER then
    return { "DIFFERS", "" }
  end
  replied_bytes = replied_bytes + length
  return { "DIFFERS", existing or redis.call("GET", body_key .. id) or "" }
end
