--- @include "keys"
--- @include "format_integer"
-- Adds to one of the box's lifetime totals. It comes after the other writes, so a total that something else wrote, and
-- that is no number or too large a one, must not fail the script: it stays as it is, and stats reports it.
local function increase_total(total, by)
  if by > 0 then
    local reply = redis.pcall("HINCRBY", key.counters, total, format_integer(by))
    local refused = type(reply) == "table" and tostring(reply.err)
    if refused and not string.find(refused, "integer", 1, true) and not string.find(refused, "overflow", 1, true) then
      redis.call("HINCRBY", key.counters, total, format_integer(by)) -- fails again, with the server's own error
    end
  end
end
