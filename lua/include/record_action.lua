--- @include "keys"
-- Writes an operator's action into the box's log: who, why, the number of events (`total`, or that of the ids), the
-- first ids, detail, and `token` as the last field unless it is "". Writes nothing if `who` is "", or if no event was changed.
local LOG_LENGTH = 10000
local LOG_IDS = 20
local function record_action(action, who, why, ids, detail, total, token)
  if who == "" or (ids and #ids == 0) then
    return
  end
  redis.call("XADD", key.log, "MAXLEN", "~", LOG_LENGTH, "*", "action", action, "who", who, "why", why,
    "count", total or ids and #ids or 0, "ids", ids and table.concat(ids, " ", 1, math.min(#ids, LOG_IDS)) or "",
    "detail", detail or "", unpack(token and token ~= "" and { "token", token } or {}))
end
