#!lua
-- abandon: ends a handling that failed, so that the next delivery of the event can begin at once.
--
-- Guarantee: fenced by the token. The claim number is kept: a lower one stays refused.
--
-- KEYS[1]   record    hash; of the event
-- ARGV[1]   token     of the handling that failed
--
-- Returns   ABANDONED, or LOST if another handling has begun, or this one is finished

local record = KEYS[1]
local token = ARGV[1]

local stored = redis.call("HMGET", record, "token", "until")
if stored[1] ~= token or not stored[2] then
  return "LOST"
end
redis.call("HSET", record, "until", "0")
return "ABANDONED"
