--- @include "keys"
--- @include "examine_id"
--- @include "check_keys"
-- Removes an id of which neither an event nor a body is stored from all sorted sets, with its history.
local function forget_id(item, dry)
  check_keys()
  for _, set in ipairs(SETS) do
    if item.scores[set] then
      item.done[#item.done + 1] = "removed from " .. set .. ": nothing of the event is stored"
    end
  end
  if item.history > 0 then
    item.done[#item.done + 1] = "its history is removed: nothing of the event is stored"
  end
  if dry then
    return
  end
  for _, set in ipairs(SETS) do
    redis.call("ZREM", key[set], item.id)
  end
  redis.call("UNLINK", history_key .. item.id)
end
