--- @include "keys"
-- Writes an operator's action into the box's log: who, why, and the first ids it concerned. Nothing without a name.
local LOG_LENGTH = 10000
local LOG_IDS = 20
local function record_action(action, who, why, ids, detail)
  if who == "" then
    return
  end
  redis.call("XADD", key.log, "MAXLEN", "~", LOG_LENGTH, "*", "action", action, "who", who, "why", why,
    "count", #ids, "ids", table.concat(ids, " ", 1, math.min(#ids, LOG_IDS)), "detail", detail or "")
end
