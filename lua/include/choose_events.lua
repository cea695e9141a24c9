--- @include "keys"
--- @include "is_suspect_claimed"
--- @include "sample_pending"
-- Chooses which of the events that are available by `due` to claim next: the oldest, or one suspect if it is older
-- than they are. With `spread`, a sample of them, and a suspect only if there are no others. Returns their ids, the
-- index that holds them, and whether it is a suspect.
local function choose_events(due, limit, spread)
  local ids = spread and sample_pending(due, tonumber(limit))
    or redis.call("ZRANGEBYSCORE", key.pending, "-inf", due, "LIMIT", "0", limit)
  local suspect = redis.call("ZRANGEBYSCORE", key.suspect, "-inf", due, "WITHSCORES", "LIMIT", "0", "1")
  if suspect[1] and not is_suspect_claimed()
    and (not ids[1] or not spread and tonumber(suspect[2]) <= tonumber(redis.call("ZSCORE", key.pending, ids[1]))) then
    return { suspect[1] }, key.suspect, true
  end
  return ids, key.pending, false
end
