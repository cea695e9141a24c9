--- @include "keys"
--- @include "open_box"
--- @include "send_hint"
-- Adds a PENDING event to its index: waiting (behind the head of its line, or its ordering key is paused), suspect
-- (after two expired leases in a row) or pending. Also updates its scores for counting retries and for uniqueness, and
-- the time to hint at. An event with an ordering_key is already in its line. `tried` is the number of attempts since
-- its put or its last replay.
local SUSPECT_FROM = 2
local function enqueue(id, available_at, tried, expiries, ordering_key, unique)
  local waits = ordering_key and (redis.call("ZRANGE", line_key .. ordering_key, "0", "0")[1] ~= id
    or keys_paused and redis.call("ZSCORE", key.paused, ordering_key))
  if waits then
    redis.call("ZADD", key.waiting, available_at, id)
  else
    soonest = math.min(soonest, tonumber(available_at))
    redis.call("ZADD", expiries >= SUSPECT_FROM and key.suspect or key.pending, available_at, id)
  end
  if tried > 0 then
    redis.call("ZADD", key.retries, available_at, id)
  end
  if unique then
    redis.call("ZADD", unique_key .. unique, tried > 0 and available_at or "0", id)
  end
end
