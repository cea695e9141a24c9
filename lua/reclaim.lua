#!lua flags=allow-oom
-- reclaim: PENDING → CLAIMED, for members of a stream's batch that lost their claims.
--
-- Guarantee: claims only available events whose last claim is the one in the batch: they were released or reaped,
-- and not claimed since then. They stay members under a new claim number; a member that is still claimed keeps its
-- number. The others are left alone: they stay members of a batch that was cut, which never changes, and leave a
-- batch that is still open, because nobody has read it. Nothing is claimed from a paused box, and no event of a paused
-- ordering key. Limits do not hold up members: they were counted when they were claimed first.
--
-- KEYS[1]   meta     hash; names the box
-- ARGV[1]   relay    name of the stream as a relay
-- ARGV[2]   lease    ms
-- ARGV[3]   stream   name
-- ARGV[4]   owner    of the stream
-- ARGV[5]   batch    number of the batch
-- ARGV[6]   id       then further ids
--
-- Returns   for each id OK, NOTDUE (not available yet), LEASELOST, or LEFT (it left the open batch)
-- Errors    NEWERLAYOUT, PAUSED, STREAMTAKEN

--- @include "keys"
--- @include "now_ms"
--- @include "open_box"
--- @include "check_keys"
--- @include "call_in_chunks"
--- @include "find_batch"
--- @include "make_paused_error"
--- @include "format_integer"
--- @include "as_number"
--- @include "raise_longest_lease"
--- @include "read_event"

local FIELDS = { "claim", "attempts", "unique_key", "ordering_key", "state", "claimed_by" }
local relay, lease, stream, owner, batch = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]
local settings, refusal = open_box()
if refusal then
  return refusal
end
local members, taken_over = find_batch(stream, owner, batch)
if taken_over then
  return taken_over
end
local now = now_ms()
local cut = tonumber(redis.call("HGET", stream_key .. stream, "cut") or 0)
local open = tonumber(batch) > cut
local replies, back, leaving = {}, {}, {}
for at = 6, #ARGV do
  local id = ARGV[at]
  local event = read_event(id, FIELDS)
  local known = redis.call("ZSCORE", members, id)
  local available_at = redis.call("ZSCORE", key.pending, id) or redis.call("ZSCORE", key.suspect, id)
    or keys_paused and event.ordering_key and redis.call("ZSCORE", key.waiting, id)
      and redis.call("ZSCORE", key.paused, event.ordering_key) and "+inf"
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
    event.id = id
    back[#back + 1] = event
  elseif word ~= "OK" and known and open then
    word = "LEFT"
    leaving[#leaving + 1] = id
  end
  replies[#replies + 1] = word
end
local paused = back[1] and settings.paused and make_paused_error(settings.paused, now)
if paused then
  return paused
end
check_keys()

raise_longest_lease(settings, lease)
for _, event in ipairs(back) do
  local id, hash = event.id, event_key .. event.id
  local number = redis.call("HINCRBY", key.counters, "claimed", "1")
  redis.call("HSET", hash, "state", "CLAIMED", "claimed_at", format_integer(now), "claimed_by", relay,
    "claim", format_integer(number), "attempts", format_integer(as_number(event.attempts) + 1))
  redis.call("HDEL", hash, "alone", "exhausted")
  for _, index in ipairs({ "pending", "suspect", "retries" }) do
    redis.call("ZREM", key[index], id)
  end
  redis.call("ZADD", key.claimed, now + lease, id)
  if event.unique_key then
    redis.call("ZADD", unique_key .. event.unique_key, "+inf", id)
  end
  redis.call("ZADD", members, format_integer(number), id)
end
call_in_chunks("ZREM", members, leaving)
return replies
