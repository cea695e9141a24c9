--- @include "keys"
--- @include "read_event"
--- @include "passes_fence"
--- @include "check_keys"
--- @include "check_event_keys"
-- Collects the events in ARGV (id and claim number, every `step` from `first`) that this call ends the claim of,
-- each once. A relay's claim must pass the fence. For an operator (`relay` is "") the function `judge` returns the
-- reply, given the event and whether it was collected before. Then checks the keys that may be written. Returns the
-- replies; the events, with `fields`, `id`, and `at`, their offset in ARGV; their ids; and how many claims were
-- fenced.
local function collect_settled(first, step, fields, relay, judge)
  local replies, events, ids, seen, fenced = {}, {}, {}, {}, 0
  for at = first, #ARGV, step do
    local id, number = ARGV[at], ARGV[at + 1]
    local event = read_event(id, fields)
    local reply = "LEASELOST"
    if relay == "" then
      reply = judge(event, seen[id])
    elseif passes_fence(event.state, event.claimed_by, event.claim, relay, number) and not seen[id] then
      reply = "OK"
    end
    if reply == "OK" then
      check_event_keys(id, event.ordering_key, event.unique_key)
      event.id, event.at, seen[id] = id, at, true
      events[#events + 1], ids[#ids + 1] = event, id
    elseif reply == "LEASELOST" then
      fenced = fenced + 1
    end
    replies[#replies + 1] = reply
  end
  check_keys()
  return replies, events, ids, fenced
end
