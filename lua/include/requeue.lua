--- @include "keys"
--- @include "read_event"
--- @include "enqueue"
--- @include "count_attempts"
--- @include "as_number"
--- @include "read_available_at"
-- Moves a PENDING event of a line to the index that fits its place there, after the head of the line has changed. An
-- event in another state stays where it is.
local REQUEUED = { "state", "created_at", "available_at", "attempts", "expiries", "earlier_attempts" }
local function requeue(id, ordering_key, now)
  local event = read_event(id, REQUEUED)
  if event.state ~= "PENDING" then
    return
  end
  for _, index in ipairs({ "pending", "waiting", "suspect" }) do
    redis.call("ZREM", key[index], id)
  end
  enqueue(id, read_available_at(event.available_at, event.created_at, now),
    count_attempts(event.attempts, event.earlier_attempts), as_number(event.expiries), ordering_key, false)
end
