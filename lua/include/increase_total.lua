--- @include "keys"
--- @include "format_integer"
-- Adds to one of the box's lifetime totals. This comes after the other writes, so a damaged total (not a number, or
-- too large) must not fail the script: it is left as it is, and stats reports it.
local function increase_total(total, by)
  if by > 0 then
    local reply = redis.pcall("HINCRBY", key.counters, total, format_integer(by))
    local refused = type(reply) == "table" and tostring(reply.err)
    if refused and not string.find(refused, "integer", 1, true) and not string.find(refused, "overflow", 1, true) then
      redis.call("HINCRBY", key.counters, total, format_integer(by)) -- fails again, with the server's own error
    end
  end
end
