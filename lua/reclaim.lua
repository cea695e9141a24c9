#!lua flags=allow-oom
-- reclaim: PENDING → CLAIMED, for members of a stream's batch that were taken from it.
--
-- Guarantee: only available events whose last claim is the one that the batch knows: given back or reaped, and claimed by
-- nobody since. They get a new claim number, under which they stay members; one that has it already keeps it. The other
-- events are left alone. They stay members of a batch that was cut, which never changes; they leave a batch that is still
-- open, since nobody has read it. From a paused box nothing is taken back.
--
-- KEYS[1]   meta     hash; names the box
-- ARGV[1]   relay    identifier of the stream
-- ARGV[2]   lease    ms
-- ARGV[3]   stream   name
-- ARGV[4]   owner    who holds it
-- ARGV[5]   batch    number
-- ARGV[6]   id       then further ids
--
-- Returns   for each id OK, NOTDUE (available only later), LEASELOST, or LEFT (it left the open batch)
-- Errors    NEWERLAYOUT, PAUSED, STREAMTAKEN

--- @include "keys"
--- @include "now"
--- @include "open_box"
--- @include "touch"
--- @include "in_chunks"
--- @include "batch_members"
--- @include "paused_error"
--- @include "whole"
--- @include "as_number"
--- @include "note_lease"
--- @include "read_event"

local FIELDS = { "claim", "attempts", "unique_key", "state", "claimed_by" }
local relay, lease = ARGV[1], tonumber(ARGV[2])
local settings, refusal = open_box()
if refusal then
  return refusal
end
local members, taken_over = batch_members(ARGV[3], ARGV[4], ARGV[5])
if taken_over then
  return taken_over
end
local now = now_ms()
local cut = tonumber(redis.call("HGET", stream_key .. ARGV[3], "cut") or 0)
local open = tonumber(ARGV[5]) > cut
local replies, back, leaving = {}, {}, {}
for at = 6, #ARGV do
  local id = ARGV[at]
  local event = read_event(id, FIELDS)
  local known = redis.call("ZSCORE", members, id)
  local available_at = redis.call("ZSCORE", key.pending, id) or redis.call("ZSCORE", key.suspect, id)
  local same = known and as_number(event.claim) == tonumber(known)
  local word = "LEASELOST"
  if same and available_at then
    word = tonumber(available_at) <= now and "OK" or "NOTDUE"
  elseif same and event.state == "CLAIMED" and event.claimed_by == relay then
    word = "OK"
  end
  if word == "OK" and available_at then
    if event.unique_key then
      redis.call("ZCARD", unique_key .. event.unique_key)
    end
    back[#back + 1] = { id, event }
  elseif word ~= "OK" and known and open then
    word = "LEFT"
    leaving[#leaving + 1] = id
  end
  replies[#replies + 1] = word
end
if back[1] and settings.paused then
  return paused_error()
end
touch()

note_lease(settings, lease)
for _, item in ipairs(back) do
  local id, event = item[1], item[2]
  local number = redis.call("HINCRBY", key.counters, "claimed", "1")
  redis.call("HSET", event_key .. id, "state", "CLAIMED", "claimed_at", whole(now), "claimed_by", relay,
    "claim", whole(number), "attempts", whole(as_number(event.attempts) + 1))
  redis.call("HDEL", event_key .. id, "alone", "exhausted")
  for _, index in ipairs({ "pending", "suspect", "retries" }) do
    redis.call("ZREM", key[index], id)
  end
  redis.call("ZADD", key.claimed, now + lease, id)
  if event.unique_key then
    redis.call("ZADD", unique_key .. event.unique_key, "+inf", id)
  end
  redis.call("ZADD", members, whole(number), id)
end
in_chunks("ZREM", members, leaving)
return replies
