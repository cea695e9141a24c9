--- @include "keys"
--- @include "call_in_chunks"
--- @include "remove_from_index"
--- @include "move_to_lost"
--- @include "find_next_due"
--- @include "send_hint"
-- Moves claimed events, whose hashes are already written, from their index to claimed, and lost ids to lost. `first`
-- is the first claim number. Returns when the next event can be claimed: when it is due, but not before `earliest` if
-- claims are limited; and sends a hint if that is now.
local function finish_claim(taken, index, suspect, spread, first, now, earliest)
  call_in_chunks("ZADD", key.claimed, taken.leases)
  remove_from_index(index, taken.ids, taken.lost, spread)
  call_in_chunks("ZREM", key.retries, taken.retried)
  move_to_lost(taken.lost, now)
  if suspect and taken.ids[1] then
    redis.call("SET", key.alone, first .. " " .. taken.ids[1])
  end
  local next_at = find_next_due()
  if earliest and earliest > now and next_at >= 0 then
    next_at = math.max(next_at, earliest)
  end
  if next_at >= 0 and next_at <= now then
    soonest = next_at
    send_hint()
  end
  return next_at
end
