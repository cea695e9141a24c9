#!lua flags=allow-oom
-- track_stream: where a stream that drains the box stands: who holds it, how many batches were cut, and how many are settled.
--
-- Guarantee: whoever takes a stream fences everyone who held it before, and only who stands between what is settled and
-- what was cut can take it; with a predecessor, only while that one still holds it. A batch that is cut never changes;
-- one is cut or settled only by the holder, and only the next one.
--
-- KEYS[1]   meta     hash; names the box
-- ARGV[1]   action   own | look | cut | settle
-- ARGV[2]   name     of the stream
-- ARGV[3]   owner    who holds it, from now on if the action is own
-- ARGV[4]   batch    number, for cut and settle; for own, the last batch that the caller knows
-- ARGV[5]   before   for own: the holder to take it from; "" for any
--
-- Returns   {cut, settled}: the numbers of the last batch that was cut, and of the last that is settled
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
