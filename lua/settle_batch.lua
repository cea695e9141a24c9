#!lua flags=allow-oom
-- settle_batch: CLAIMED → PUBLISHED, for members of a stream's batch.
--
-- Guarantee: acknowledges as `ack` does. The events leave the batch in the same step, also those whose claims are
-- gone: the remaining members are still to be settled. Only the owner of the stream can do it.
--
-- KEYS[1]   meta     hash; names the box
-- ARGV[1]   relay    name of the stream as a relay
-- ARGV[2]   stream   name
-- ARGV[3]   owner    of the stream
-- ARGV[4]   batch    number of the batch
-- ARGV[5]   id       then for each claim the following
-- ARGV[6]   number   its claim number
--
-- Returns   for each claim OK or LEASELOST
-- Errors    NEWERLAYOUT, STREAMTAKEN

--- @include "keys"
--- @include "now_ms"
--- @include "open_box"
--- @include "find_batch"
--- @include "collect_acked"
--- @include "format_integer"
--- @include "call_in_chunks"
--- @include "finish_ack"

local relay, stream, owner, batch = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local settings, refusal = open_box()
if refusal then
  return refusal
end
local members, taken_over = find_batch(stream, owner, batch)
if taken_over then
  return taken_over
end
local now, leaving = now_ms(), {}
local acked, published_at = collect_acked(5, 2, relay, settings.deletes), format_integer(now)
for at = 5, #ARGV, 2 do
  leaving[#leaving + 1] = ARGV[at]
end

local hashes = acked.hashes
for i = 1, settings.deletes and 0 or #hashes do
  redis.call("HSET", hashes[i], "state", "PUBLISHED", "published_at", published_at)
end
call_in_chunks("ZREM", members, leaving)
finish_ack(acked, settings, settings.deletes, published_at, now)
return acked.replies
