--- @include "keys"
-- Whether any of the events whose ids are in ARGV, every `step` from `first` on, is there: one look instead of many.
local function any_exist(first, step)
  local keys = {}
  for at = first, #ARGV, step do
    keys[#keys + 1] = event_key .. ARGV[at]
  end
  return #keys > 0 and redis.call("EXISTS", unpack(keys)) > 0
end
