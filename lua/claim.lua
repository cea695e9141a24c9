#!lua flags=allow-oom
-- claim: PENDING → CLAIMED, under a lease.
--
-- Guarantee: only PENDING events whose available_at has come, oldest first, at most `limit` of them and `bytes` of
-- bodies (but at least one). Each gets a claim number that never repeats in this box. Either ordinary events or
-- exactly one suspect, and never a suspect while another is out. An event whose attempts are used up is handed out
-- marked exhausted, and not counted again. What it leaves behind, due now, is hinted at for the next relay.
--
-- KEYS[1]   meta          hash; names the box
-- ARGV[1]   relay         identifier of the caller
-- ARGV[2]   limit         count
-- ARGV[3]   lease         ms
-- ARGV[4]   attempts      limit of attempts less excused ones; 0 for none
-- ARGV[5]   bytes         of bodies
-- ARGV[6]   holding       how many claims the relay has in hand already
--
-- Returns   {now, is a suspect (0 or 1), when the next one is due in ms or -1, event...}, each event {id, number,
--           attempts, exhausted (0 or 1), fields and values as they were before, body}
-- Errors    NEWERLAYOUT, PAUSED

--- @include "keys"
--- @include "now"
--- @include "open_box"
--- @include "touch"
--- @include "touch_line"
--- @include "leave_line"
--- @include "in_chunks"
--- @include "hint"
--- @include "whole"

local relay, limit, lease = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local attempt_limit, byte_limit, holding = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local settings, refusal = open_box()
if refusal then
  return refusal
end
if settings.paused then
  return redis.error_reply("PAUSED the box is paused; resume it to claim again")
end
local now = now_ms()

-- A suspect is out while the claim noted in `alone` still holds its event; nothing has to be cleared in time.
local function suspect_out()
  local number, id = string.match(redis.call("GET", key.alone) or "", "^(%d+) (.*)$")
  if not id then
    return false
  end
  local event = redis.call("HMGET", event_key .. id, "state", "claim")
  return event[1] == "CLAIMED" and event[2] == number
end

local index, alone = key.pending, false
local ids = redis.call("ZRANGEBYSCORE", key.pending, "-inf", now, "LIMIT", 0, limit)
local suspect = redis.call("ZRANGEBYSCORE", key.suspect, "-inf", now, "WITHSCORES", "LIMIT", 0, 1)
if suspect[1] and not suspect_out()
  and (not ids[1] or tonumber(suspect[2]) <= tonumber(redis.call("ZSCORE", key.pending, ids[1]))) then
  index, alone, ids = key.suspect, true, { suspect[1] }
end

local events, lost, taken_ids, bytes = {}, {}, {}, 0
for _, id in ipairs(ids) do
  local fields, event = redis.call("HGETALL", event_key .. id), {}
  for at = 1, #fields, 2 do
    event[fields[at]] = fields[at + 1]
  end
  local body = redis.call("GET", body_key .. id)
  if event.state ~= "PENDING" or not body then
    lost[#lost + 1] = { id, event.state == "PENDING" and event.ordering_key }
    if event.ordering_key then
      touch_line(event.ordering_key, 1)
    end
  else
    bytes = bytes + #body
    if bytes > byte_limit and #events > 0 then
      break
    end
    if event.unique_key then
      redis.call("ZCARD", unique_key .. event.unique_key)
    end
    events[#events + 1] = { id, event, fields, body }
    taken_ids[#taken_ids + 1] = id
  end
end
-- When there is something to claim next: the oldest that is left, unless it is a suspect that has to wait for another.
local function next_due()
  local first = redis.call("ZRANGE", key.pending, 0, 0, "WITHSCORES")[2]
  local alone = redis.call("ZRANGE", key.suspect, 0, 0, "WITHSCORES")[2]
  if alone and (not first or tonumber(alone) < tonumber(first)) and not suspect_out() then
    first = alone
  end
  return tonumber(first or -1)
end

if #events == 0 and #lost == 0 then
  return { now, 0, next_due() }
end
touch()

local reply, leases, retried = { now, alone and 1 or 0, -1 }, {}, {}
local number = redis.call("HINCRBY", key.counters, "claimed", #events) - #events
local by_itself = #events == 1 and holding == 0
local claimed_at, lease_until = whole(now), whole(now + lease)
for position, item in ipairs(events) do
  local id, event = item[1], item[2]
  local attempts, excused = tonumber(event.attempts or 0), tonumber(event.excused or 0)
  local exhausted = attempt_limit > 0 and attempts - excused >= attempt_limit
  number = number + 1
  if attempts > 0 then
    retried[#retried + 1] = id
  end
  if event.alone or event.exhausted then
    redis.call("HDEL", event_key .. id, "alone", "exhausted")
  end
  if not exhausted then
    attempts = attempts + 1
  end
  redis.call("HSET", event_key .. id, "state", "CLAIMED", "claimed_at", claimed_at, "claimed_by", relay,
    "claim", whole(number), "attempts", whole(attempts))
  if exhausted then
    redis.call("HSET", event_key .. id, "exhausted", 1)
  elseif by_itself then
    redis.call("HSET", event_key .. id, "alone", 1)
  end
  if event.unique_key then
    redis.call("ZADD", unique_key .. event.unique_key, "+inf", id)
  end
  leases[2 * position - 1] = lease_until
  leases[2 * position] = id
  reply[position + 3] = { id, number, attempts, exhausted and 1 or 0, item[3], item[4] }
end
in_chunks("ZADD", key.claimed, leases)
in_chunks("ZREM", index, taken_ids)
in_chunks("ZREM", key.retries, retried)
for _, item in ipairs(lost) do
  redis.call("ZADD", key.lost, now, item[1])
  redis.call("ZREM", index, item[1])
  redis.call("ZREM", key.retries, item[1])
  if item[2] then
    leave_line(item[1], item[2], now)
  end
end
if alone and events[1] then
  redis.call("SET", key.alone, number .. " " .. taken_ids[1])
end
reply[3] = next_due()
if reply[3] >= 0 and reply[3] <= now then
  soonest = reply[3]
  hint()
end
return reply
