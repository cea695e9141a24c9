--- @include "keys"
-- Adds an entry to an event's history, which keeps the last 8: time in ms, claim number, outcome, relay or operator,
-- and reason.
local HISTORY = 8
local HISTORY_ERROR = 200
local function add_history(id, at, number, outcome, by, why)
  redis.call("RPUSH", history_key .. id,
    table.concat({ at, number or 0, outcome, by or "", string.sub(why or "", 1, HISTORY_ERROR) }, "\t"))
  redis.call("LTRIM", history_key .. id, "-" .. HISTORY, "-1")
end
