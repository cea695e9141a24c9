--- @include "keys"
--- @include "send_hint"
-- Puts a PENDING event where claims look for it: behind the head of its line (waiting), among those that relays died
-- with (suspect), or in pending. Also keeps its scores for counting retries and for uniqueness, and what to hint at. The
-- event is already in its line, if it has one. `tried` is how many attempts were made since its put or its last replay.
local SUSPECT_FROM = 2
local function enqueue(id, available_at, tried, expiries, ordering_key, unique)
  local behind = ordering_key and redis.call("ZRANGE", line_key .. ordering_key, "0", "0")[1] ~= id
  if behind then
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
