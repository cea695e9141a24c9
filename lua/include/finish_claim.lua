--- @include "keys"
--- @include "in_chunks"
--- @include "take_out"
--- @include "set_aside"
--- @include "next_due"
--- @include "hint"
-- Moves the events of a claim, whose hashes are written, from their index to claimed, and lost ids to lost. `first` is
-- the first claim number. Returns when the next event is due, and hints at it when that is now.
local function finish_claim(taken, index, suspect, spread, first, now)
  in_chunks("ZADD", key.claimed, taken.leases)
  take_out(index, taken.ids, taken.lost, spread)
  in_chunks("ZREM", key.retries, taken.retried)
  set_aside(taken.lost, now)
  if suspect and taken.ids[1] then
    redis.call("SET", key.alone, first .. " " .. taken.ids[1])
  end
  local next_at = next_due()
  if next_at >= 0 and next_at <= now then
    soonest = next_at
    hint()
  end
  return next_at
end
