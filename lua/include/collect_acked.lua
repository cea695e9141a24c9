--- @include "keys"
--- @include "passes_fence"
--- @include "check_keys"
--- @include "check_event_keys"
--- @include "call_with_events"
-- Collects the claims in ARGV (id and number, every `step` from `first`) that still hold their events, and the reply
-- for each claim. Then checks the keys that will be written; with `delete` those of the events too.
--
-- Fields are read by position: read_event would make an ack 12 % slower (0.5 of 3.6 microseconds for a plain event).
local function collect_acked(first, step, relay, delete)
  local STATE, CLAIMED_BY, CLAIM, ORDERING_KEY, UNIQUE_KEY = 1, 2, 3, 4, 5
  local replies, ids, hashes, keyed, seen, ordered, fenced = {}, {}, {}, {}, {}, false, 0
  for at = first, #ARGV, step do
    local id, number = ARGV[at], ARGV[at + 1]
    local hash = event_key .. id
    local event = redis.call("HMGET", hash, "state", "claimed_by", "claim", "ordering_key", "unique_key")
    if passes_fence(event[STATE], event[CLAIMED_BY], event[CLAIM], relay, number) and not seen[id] then
      local ordering, unique = event[ORDERING_KEY], event[UNIQUE_KEY]
      if ordering or unique then
        check_event_keys(id, ordering, unique)
        keyed[#keyed + 1] = { id = id, ordering = ordering, unique = unique }
      end
      seen[id] = true
      ids[#ids + 1] = id
      hashes[#ids] = hash
      ordered = ordered or ordering
      replies[#replies + 1] = "OK"
    else
      fenced = fenced + 1
      replies[#replies + 1] = "LEASELOST"
    end
  end
  check_keys(not ordered and { "counters", "claimed", "published", "wake" })
  if delete then
    call_with_events("EXISTS", ids)
  end
  return { replies = replies, ids = ids, hashes = hashes, keyed = keyed, fenced = fenced }
end
