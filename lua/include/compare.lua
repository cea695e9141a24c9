--- @include "keys"
--- @include "whole"
-- Whether the event that put is given at this place of ARGV is the same as the one that exists, and that one's body where
-- it is not. `there` is that body, or false for the stored one, of which no more is read than the new one is long. A body is
-- told only if it is small, and all that is told is; else it is "".
local TELLABLE = 65536
local TELLABLE_IN_ALL = 1048576
local told = 0
local function compare(at, there)
  local size, id = tonumber(ARGV[at + 3]), ARGV[at]
  local content = there and string.sub(there, 1, size) or redis.call("GETRANGE", body_key .. id, "0", whole(size - 1))
  if content == string.sub(ARGV[at + 2], 1, size) then
    return true
  end
  local length = there and #there or redis.call("STRLEN", body_key .. id)
  if length > TELLABLE or told + length > TELLABLE_IN_ALL then
    return false, ""
  end
  told = told + length
  return false, there or redis.call("GET", body_key .. id) or ""
end
