--- @include "keys"
--- @include "call_in_chunks"
--- @include "remove_from_index"
--- @include "move_to_lost"
--- @include "find_next_due"
--- @include "send_hint"
-- Moves claimed events, whose hashes are already written, from their index to claimed, and lost ids to lost. `first`
-- is the first claim number; `allowance` is that of limit_claims, if claims are limited. Returns when the next event can
-- be claimed, and the limit that holds due events back until then; and sends a hint if that is now.
local function finish_claim(taken, index, suspect, spread, first, now, allowance)
  call_in_chunks("ZADD", key.claimed, taken.leases)
  remove_from_index(index, taken.ids, taken.lost, spread)
  call_in_chunks("ZREM", key.retries, taken.retried)
  move_to_lost(taken.lost, now)
  if suspect and taken.ids[1] then
    redis.call("SET", key.alone, first .. " " .. taken.ids[1])
  end
  local next_at, held_back = find_next_due(), 0
  if allowance then
    next_at, held_back = allowance.spend(#taken.ids, next_at)
  end
  if next_at >= 0 and next_at <= now then
    soonest = next_at
    send_hint()
  end
  return next_at, held_back
end
