--- @include "keys"
-- Adds an entry to an event's history, which keeps the last 8: time in ms, claim number, outcome, relay or operator,
-- and reason. `note_start` stores when an attempt began.
local HISTORY, OLDEST = 8, "-8"
local HISTORY_ERROR = 200
local function add_history(id, at, number, outcome, by, why)
  local length = redis.call("RPUSH", history_key .. id,
    table.concat({ at, number or 0, outcome, by or "", string.sub(why or "", 1, HISTORY_ERROR) }, "\t"))
  if length > HISTORY then
    redis.call("LTRIM", history_key .. id, OLDEST, "-1")
  end
end
