--- @include "keys"
--- @include "check_keys"
--- @include "check_line_keys"
--- @include "estimate_claim_work"
-- Collects the events to claim among the ids that were found in an index, in their order. It stops before the bodies
-- exceed `byte_limit` (but takes at least one event) and when the claim has enough work. Ids without a complete
-- event are lost: each {id, the line to leave or false}. Then checks the keys that will be written. Bodies are read
-- only with `read_bodies`.
--
-- Fields are read by position: read_event would make a claim 9 % slower (0.5 of 6 microseconds for a plain event).
local STATE, CREATED_AT, AVAILABLE_AT, ATTEMPTS, UNIQUE_KEY = 1, 2, 3, 4, 5
local function collect_claimable(ids, byte_limit, read_bodies)
  local taken, hashes, events, bodies, lost, bytes, work = {}, {}, {}, {}, {}, 0, 0
  for _, id in ipairs(ids) do
    local hash = event_key .. id
    local event = redis.call("HMGET", hash, "state", "created_at", "available_at", "attempts", "unique_key")
    local body = read_bodies and redis.call("GET", body_key .. id)
    local size = body and #body or read_bodies and 0 or redis.call("STRLEN", body_key .. id)
    if event[STATE] ~= "PENDING" or size == 0 then
      local ordering = redis.call("HGET", hash, "ordering_key")
      lost[#lost + 1] = { id, event[STATE] == "PENDING" and ordering }
      if ordering then
        check_line_keys(ordering, 1)
      end
    else
      bytes = bytes + size
      if bytes > byte_limit and taken[1] then
        break
      end
      if event[UNIQUE_KEY] then
        redis.call("ZCARD", unique_key .. event[UNIQUE_KEY])
      end
      local i = #taken + 1
      taken[i], hashes[i], events[i], bodies[i] = id, hash, event, body
    end
    work = work + estimate_claim_work(event[UNIQUE_KEY], event[ATTEMPTS], taken[#taken] ~= id)
    if work >= CLAIM_WORK then
      break
    end
  end
  check_keys(not lost[1] and { "counters", "claimed", "retries", "wake", "alone" })
  return { ids = taken, hashes = hashes, events = events, bodies = bodies, lost = lost, leases = {}, retried = {} }
end
