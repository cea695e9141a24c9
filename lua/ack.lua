#!lua flags=allow-oom
-- ack: CLAIMED → PUBLISHED.
--
-- Guarantee: fenced; a claim that is gone changes nothing. The next event of an ordering line becomes available in the
-- same step. With "delete on success" the event is removed instead of kept.
--
-- KEYS[1]   meta     hash; names the box
-- ARGV[1]   relay    name of the caller
-- ARGV[2]   delete   1 to remove the events, 0 to do as the box is set
-- ARGV[3]   id       then for each claim the following
-- ARGV[4]   number   its claim number
--
-- Returns   for each claim OK or LEASELOST
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "now_ms"
--- @include "open_box"
--- @include "collect_acked"
--- @include "format_integer"
--- @include "finish_ack"

local relay, delete = ARGV[1], ARGV[2] == "1"
local settings, refusal = open_box()
if refusal then
  return refusal
end
delete = delete or settings.deletes
local now = now_ms()
local acked, published_at = collect_acked(3, 2, relay, delete), format_integer(now)

local hashes = acked.hashes
for i = 1, delete and 0 or #hashes do
  redis.call("HSET", hashes[i], "state", "PUBLISHED", "published_at", published_at)
end
finish_ack(acked, settings, delete, published_at, now)
return acked.replies
