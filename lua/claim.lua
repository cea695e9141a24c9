#!lua flags=allow-oom
-- claim: PENDING → CLAIMED, under a lease.
--
-- Guarantee: only PENDING events whose available_at has come, oldest first or (`spread`) a sample of them, at most
-- `limit` of them and `bytes` of bodies (but at least one), and fewer where they take more work. Each gets a claim number
-- that never repeats in this box. Ordinary events or exactly one suspect, never while another is out. An event whose
-- attempts are used up is marked exhausted, and not counted again. Events left behind that are due are hinted at. The
-- claims of a stream join its batch.
--
-- KEYS[1]   meta          hash; names the box
-- ARGV[1]   relay         identifier of the caller
-- ARGV[2]   limit         count
-- ARGV[3]   lease         ms
-- ARGV[4]   attempts      limit of attempts less excused ones; 0 for none
-- ARGV[5]   bytes         of bodies
-- ARGV[6]   holding       how many claims the relay has in hand already
-- ARGV[7]   until         only what was available by then, ms; "" for now
-- ARGV[8]   stream        name; "" for none
-- ARGV[9]   owner         who holds the stream
-- ARGV[10]  batch         the number of the batch
-- ARGV[11]  beside        id of the only event that the relay has in hand; "" for none, or several
-- ARGV[12]  spread        1 for a sample instead of the oldest
--
-- Returns   now, whether it is a suspect (0 or 1), when the next one is due in ms or -1, the number of the first claim
--           (the others follow), then for each event: id, body, attempts, exhausted (0 or 1), created_at, available_at,
--           and if it was claimed before: excused, due_at (else it was due when it became available); for a stream no events
-- Errors    NEWERLAYOUT, PAUSED, STREAMTAKEN

--- @include "keys"
--- @include "now"
--- @include "open_box"
--- @include "touch"
--- @include "touch_line"
--- @include "set_aside"
--- @include "take_out"
--- @include "claim_work"
--- @include "as_number"
--- @include "note_lease"
--- @include "in_chunks"
--- @include "hint"
--- @include "next_due"
--- @include "batch_members"
--- @include "end_alone"
--- @include "whole"
--- @include "choose_events"

-- By position: read_event would make this script 8 % slower (0.5 of 6 microseconds for a plain event).
local STATE, CREATED_AT, AVAILABLE_AT, ATTEMPTS, UNIQUE_KEY = 1, 2, 3, 4, 5
local relay, limit, lease, spread = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[12] == "1"
local attempt_limit, byte_limit, holding = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local settings, refusal = open_box()
if refusal then
  return refusal
end
local members, taken_over = batch_members(ARGV[8], ARGV[9], ARGV[10])
if settings.paused or taken_over then
  return taken_over or redis.error_reply("PAUSED the box is paused; resume it to claim again")
end
local now = now_ms()
local claimed_at, lease_until = whole(now), whole(now + lease)
local due = ARGV[7] ~= "" and whole(math.min(now, tonumber(ARGV[7]))) or claimed_at
local ids, index, alone = choose_events(due, limit, spread)
local taken, places, events, bodies, lost, bytes, work = {}, {}, {}, {}, {}, 0, 0
for _, id in ipairs(ids) do
  local place = event_key .. id
  local event = redis.call("HMGET", place, "state", "created_at", "available_at", "attempts", "unique_key")
  local body = not members and redis.call("GET", body_key .. id)
  local size = members and redis.call("STRLEN", body_key .. id) or body and #body or 0
  if event[STATE] ~= "PENDING" or size == 0 then
    local ordering = redis.call("HGET", place, "ordering_key")
    lost[#lost + 1] = { id, event[STATE] == "PENDING" and ordering }
    if ordering then
      touch_line(ordering, 1)
    end
  else
    bytes = bytes + size
    if bytes > byte_limit and taken[1] then
      break
    end
    if event[UNIQUE_KEY] then
      redis.call("ZCARD", unique_key .. event[UNIQUE_KEY])
    end
    local position = #taken + 1
    taken[position], places[position], events[position], bodies[position] = id, place, event, body
  end
  work = work + claim_work(event[UNIQUE_KEY], event[ATTEMPTS], taken[#taken] ~= id)
  if work >= CLAIM_WORK then
    break
  end
end
if #taken == 0 and #lost == 0 then
  return { now, 0, next_due(), 0 }
end
touch(not lost[1] and { "counters", "claimed", "retries", "wake", "alone" })

end_alone(taken[1] and ARGV[11] or "", relay)
note_lease(settings, lease)
local first = redis.call("HINCRBY", key.counters, "claimed", whole(#taken)) - #taken + 1
local reply, leases, retried, numbered = { now, alone and 1 or 0, -1, first }, {}, {}, {}
local by_itself = #taken == 1 and holding == 0
for position, id in ipairs(taken) do
  local event, place, excused, due_at, exhausted = events[position], places[position], false, false, false
  local attempts = as_number(event[ATTEMPTS])
  if attempts > 0 then
    local excused_before, due_before, alone_before, exhausted_before =
      unpack(redis.call("HMGET", place, "excused", "due_at", "alone", "exhausted"))
    excused, due_at = excused_before and as_number(excused_before), due_before or event[CREATED_AT]
    exhausted = attempt_limit > 0 and attempts - (excused or 0) >= attempt_limit
    retried[#retried + 1] = id
    if alone_before or exhausted_before then
      redis.call("HDEL", place, "alone", "exhausted")
    end
  end
  if not exhausted then
    attempts = attempts + 1
  end
  local number = whole(first + position - 1)
  redis.call("HSET", place, "state", "CLAIMED", "claimed_at", claimed_at, "claimed_by", relay, "claim", number,
    "attempts", whole(attempts))
  if exhausted then
    redis.call("HSET", place, "exhausted", "1")
  elseif by_itself then
    redis.call("HSET", place, "alone", "1")
  end
  if event[UNIQUE_KEY] then
    redis.call("ZADD", unique_key .. event[UNIQUE_KEY], "+inf", id)
  end
  leases[2 * position - 1], leases[2 * position] = lease_until, id
  if members then
    numbered[2 * position - 1], numbered[2 * position] = number, id
  else
    local at, available_at = 8 * position - 4, event[AVAILABLE_AT] or event[CREATED_AT]
    reply[at + 1], reply[at + 2], reply[at + 3], reply[at + 4] = id, bodies[position], attempts, exhausted and 1 or 0
    reply[at + 5], reply[at + 6], reply[at + 7], reply[at + 8] = event[CREATED_AT], available_at, excused, due_at
  end
end
in_chunks("ZADD", key.claimed, leases)
in_chunks("ZADD", members, numbered)
take_out(index, taken, lost, spread)
in_chunks("ZREM", key.retries, retried)
set_aside(lost, now)
if alone and taken[1] then
  redis.call("SET", key.alone, first .. " " .. taken[1])
end
reply[3] = next_due()
if reply[3] >= 0 and reply[3] <= now then
  soonest = reply[3]
  hint()
end
return reply
