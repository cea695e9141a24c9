#!lua
-- finish: records that an event was handled; its later deliveries are duplicates.
--
-- Guarantee: fenced by the token, so that a repeated call is safe. Works while the server is out of memory, if the record is still there.
--
-- KEYS[1]   record    hash; of the event
-- ARGV[1]   token     of the handling that ended
-- ARGV[2]   claim     claim number; "" if it is not known
-- ARGV[3]   remember  ms; how long the record is kept from now
--
-- Returns   FINISHED, or LOST if another handling has begun, and may have finished

local record = KEYS[1]
local token, claim, remember = ARGV[1], ARGV[2], ARGV[3]

local stored = redis.call("HMGET", record, "claim", "token")
if stored[1] and stored[2] ~= token then
  return "LOST"
end
if stored[1] then
  redis.call("HDEL", record, "until")
else
  redis.call("HSET", record, "claim", claim, "token", token)
end
redis.call("PEXPIRE", record, remember)
return "FINISHED"
