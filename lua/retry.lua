#!lua flags=allow-oom
-- retry: CLAIMED → PENDING, after a failure.
--
-- Guarantee: fenced; a claim that is gone changes nothing. The claim has counted the attempt; an attempt that the
-- caller excuses, because it proves nothing against the event, does not count against the limit. The caller chooses
-- the delay, at least 1 ms, so that available_at is always after now.
--
-- KEYS[1]   meta     hash; names the box
-- ARGV[1]   relay    name of the caller
-- ARGV[2]   id       then for each claim the following
-- ARGV[3]   number   its claim number
-- ARGV[4]   delay    ms from now
-- ARGV[5]   excuse   1 to excuse the attempt
-- ARGV[6]   error    text; the caller limits its length
--
-- Returns   for each claim OK or LEASELOST
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "now_ms"
--- @include "open_box"
--- @include "collect_settled"
--- @include "format_integer"
--- @include "add_history"
--- @include "note_start"
--- @include "as_number"
--- @include "enqueue"
--- @include "call_in_chunks"
--- @include "increase_total"
--- @include "send_hint"

local FIELDS = { "state", "claimed_by", "claim", "ordering_key", "unique_key", "attempts", "excused", "exhausted",
  "claimed_at" }
local relay = ARGV[1]
local settings, refusal = open_box()
if refusal then
  return refusal
end
local now = now_ms()
local failed_at = format_integer(now)
local replies, events, ids, fenced = collect_settled(2, 5, FIELDS, relay)

for _, event in ipairs(events) do
  local id, at, claim, attempts = event.id, event.at, event.claim, as_number(event.attempts)
  local delay, excuse, why = tonumber(ARGV[at + 2]), ARGV[at + 3] == "1", ARGV[at + 4]
  local hash, available_at = event_key .. id, format_integer(now + math.max(1, delay))
  add_history(id, failed_at, claim, "retried", relay, why)
  redis.call("HSET", hash, "state", "PENDING", "available_at", available_at, "last_error", why,
    note_start(event, claim, attempts))
  redis.call("HDEL", hash, "claimed_at", "claimed_by", "expiries")
  if excuse and not event.exhausted then
    redis.call("HSET", hash, "excused", format_integer(as_number(event.excused) + 1))
  end
  enqueue(id, available_at, attempts, 0, event.ordering_key, event.unique_key)
end
call_in_chunks("ZREM", key.claimed, ids)
increase_total("retried", #events)
increase_total("fenced", fenced)
if settings.max_in_flight then
--- @include "note_room"
  note_room(settings, #ids, now)
end
send_hint()
return replies
