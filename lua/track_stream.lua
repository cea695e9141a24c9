#!lua flags=allow-oom
-- track_stream: records who owns a stream that drains the box, how many batches were cut, and how many are settled.
--
-- Guarantee: taking a stream fences everyone who owned it before. Only a caller whose last batch lies between the
-- settled and the cut ones can take it; with `before`, only while that owner still has it. A batch that was cut
-- never changes. Only the owner cuts or settles a batch, and only the next one.
--
-- KEYS[1]   meta     hash; names the box
-- ARGV[1]   action   own (take the stream) | look | cut | settle
-- ARGV[2]   name     of the stream
-- ARGV[3]   owner    of the stream; for own, the new owner
-- ARGV[4]   batch    number, for cut and settle; for own, the last batch known to the caller
-- ARGV[5]   before   for own, the owner to take it from; "" for any
--
-- Returns   {cut, settled}: the numbers of the last batch that was cut, and of the last that was settled
-- Errors    NEWERLAYOUT, STREAMTAKEN

--- @include "keys"
--- @include "open_box"
--- @include "find_batch"

local action, name, owner, number, before = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local batch = tonumber(number)
local _, refusal = open_box()
if refusal then
  return refusal
end
local where = stream_key .. name
local last_cut, last_settled = unpack(redis.call("HMGET", where, "cut", "settled"))
local cut, settled = tonumber(last_cut or 0), tonumber(last_settled or 0)
if action == "own" then
  if batch < settled or batch > cut then
    return { cut, settled }
  end
  if before == "" or redis.call("HGET", where, "owner") == before then
    redis.call("HSET", where, "owner", owner)
    return { cut, settled }
  end
end
local members, taken_over = find_batch(name, owner, action ~= "look" and number)
if taken_over then
  return taken_over
end
if action == "cut" and batch == cut + 1 and redis.call("ZCARD", members) > 0 then
  cut = batch
  redis.call("HSET", where, "cut", cut)
elseif action == "settle" and batch == settled + 1 and batch <= cut and redis.call("ZCARD", members) == 0 then
  settled = batch
  redis.call("HSET", where, "settled", settled)
end
return { cut, settled }
