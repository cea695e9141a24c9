--- @include "keys"
-- The keys of the events whose ids are in ARGV (every `step` from `first`), by their position there; and whether any
-- of them exists. One EXISTS instead of many: usually none does.
local function look_up_events(first, step)
  local by_place, all = {}, {}
  for at = first, #ARGV, step do
    by_place[at] = event_key .. ARGV[at]
    all[#all + 1] = by_place[at]
  end
  return by_place, #all > 0 and redis.call("EXISTS", unpack(all)) > 0
end
