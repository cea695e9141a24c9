--- @include "keys"
--- @include "check_line_keys"
-- Reads the keys of one event that may be written: its history, its body, its unique key, and its line with the next
-- head. `leaving` counts the events that this call takes out of each line.
local leaving = {}
local function check_event_keys(id, ordering_key, unique)
  redis.call("LLEN", history_key .. id)
  redis.call("STRLEN", body_key .. id)
  if unique then
    redis.call("ZCARD", unique_key .. unique)
  end
  if ordering_key then
    leaving[ordering_key] = (leaving[ordering_key] or 0) + 1
    check_line_keys(ordering_key, leaving[ordering_key])
  end
end
