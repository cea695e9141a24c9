--- @include "keys"
--- @include "open_box"
--- @include "is_suspect_claimed"
-- When the next event is due, in ms: the oldest event that is not claimed, but not a suspect while another suspect
-- is claimed; or when the first pause of an ordering key ends, because its head may be due then; -1 for never.
local function find_next_due()
  local first = redis.call("ZRANGE", key.pending, "0", "0", "WITHSCORES")[2]
  local alone = redis.call("ZRANGE", key.suspect, "0", "0", "WITHSCORES")[2]
  if alone and (not first or tonumber(alone) < tonumber(first)) and not is_suspect_claimed() then
    first = alone
  end
  if keys_paused and keys_paused < tonumber(first or math.huge) then
    return keys_paused
  end
  return tonumber(first or -1)
end
