#!lua flags=allow-oom
-- release: CLAIMED → PENDING, returned without an attempt.
--
-- Guarantee: a relay's release is fenced. An operator's release takes the claim away, so that the relay is fenced
-- from then on. The attempt is excused: it does not count against the limit. Without a delay the event keeps its
-- available_at.
--
-- KEYS[1]   meta     hash; names the box
-- ARGV[1]   relay    name of the caller; "" for an operator
-- ARGV[2]   who      the operator; "" for a relay
-- ARGV[3]   why      the operator's reason
-- ARGV[4]   delay    ms from now; "" keeps available_at
-- ARGV[5]   token    the same in all steps of one action, for the log; "" for an action of one step
-- ARGV[6]   id       then for each event the following
-- ARGV[7]   number   its claim number; "" for an operator
--
-- Returns   for each event OK, LEASELOST, NOTCLAIMED or UNKNOWN
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "now_ms"
--- @include "open_box"
--- @include "collect_settled"
--- @include "format_integer"
--- @include "read_available_at"
--- @include "add_history"
--- @include "note_start"
--- @include "as_number"
--- @include "enqueue"
--- @include "record_action"
--- @include "increase_total"
--- @include "send_hint"

local FIELDS = { "state", "claimed_by", "claim", "ordering_key", "unique_key", "attempts", "excused", "expiries",
  "available_at", "exhausted", "created_at", "claimed_at" }
local relay, who, why, delay, token = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local settings, refusal = open_box()
if refusal then
  return refusal
end
local now = now_ms()
local released_at = format_integer(now)

local function judge(event, released)
  if not event.state then
    return "UNKNOWN"
  end
  return event.state == "CLAIMED" and not released and "OK" or "NOTCLAIMED"
end

local replies, events, ids, fenced = collect_settled(6, 2, FIELDS, relay, judge)

for _, event in ipairs(events) do
  local id, hash, attempts = event.id, event_key .. event.id, as_number(event.attempts)
  local available_at = format_integer(
    delay == "" and read_available_at(event.available_at, event.created_at, now) or now + (tonumber(delay) or 0))
  add_history(id, released_at, event.claim, "released", relay == "" and who or event.claimed_by, why)
  redis.call("HSET", hash, "state", "PENDING", "available_at", available_at,
    note_start(event, event.claim, attempts))
  redis.call("HDEL", hash, "claimed_at", "claimed_by")
  if not event.exhausted then
    redis.call("HSET", hash, "excused", format_integer(as_number(event.excused) + 1))
  end
  redis.call("ZREM", key.claimed, id)
  enqueue(id, available_at, attempts, as_number(event.expiries), event.ordering_key, event.unique_key)
end
record_action("release", who, why, ids, nil, nil, token)
increase_total("released", #ids)
increase_total("fenced", fenced)
if settings.max_in_flight then
--- @include "note_room"
  note_room(settings, #ids, now)
end
send_hint()
return replies
