--- @include "keys"
-- The keys of the events whose ids are in ARGV (every `step` from `first`), by their offset there; and whether any
-- of them exists. One EXISTS instead of many: usually none does.
local function look_up_events(first, step)
  local hashes, all = {}, {}
  for at = first, #ARGV, step do
    hashes[at] = event_key .. ARGV[at]
    all[#all + 1] = hashes[at]
  end
  return hashes, #all > 0 and redis.call("EXISTS", unpack(all)) > 0
end
