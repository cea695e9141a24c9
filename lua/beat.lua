#!lua flags=allow-oom
-- beat: a relay reports that it is alive, and its figures; or that it is leaving.
--
-- Guarantee: changes only the records of relays. Relays without a beat for `forget` are removed, a few at a time.
--
-- KEYS[1]   meta      hash; names the box
-- ARGV[1]   relay     name of the caller
-- ARGV[2]   instance  distinguishes two relays of one name
-- ARGV[3]   fresh     ms; another instance whose last beat is younger is alive
-- ARGV[4]   forget    ms; relays whose last beat is older are removed
-- ARGV[5]   leaving   1 if the relay is leaving
-- ARGV[6]   field     then for each field the following
-- ARGV[7]   value
--
-- Returns   {} or, when another instance with this name is alive, its fields and values
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "now_ms"
--- @include "open_box"

local FORGET_AT_ONCE = 10
local relay, instance = ARGV[1], ARGV[2]
local fresh, forget, leaving = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5] == "1"
local _, refusal = open_box()
if refusal then
  return refusal
end
local now = now_ms()
local mine, other = relay_key .. relay, {}
local holder, seen = redis.call("HGET", mine, "instance"), redis.call("ZSCORE", key.relays, relay)
local ago = seen and now - tonumber(seen)
-- A last beat in the future: the server's clock was set back, and there was no beat since.
if holder and holder ~= instance and seen and ago >= 0 and ago < fresh then
  other = redis.call("HGETALL", mine)
end
local forgotten = redis.call("ZRANGEBYSCORE", key.relays, "-inf", now - forget, "LIMIT", 0, FORGET_AT_ONCE)
for _, name in ipairs(forgotten) do
  redis.call("HLEN", relay_key .. name)
end

for _, name in ipairs(forgotten) do
  redis.call("UNLINK", relay_key .. name)
  redis.call("ZREM", key.relays, name)
end
if leaving then
  if holder == instance then
    redis.call("UNLINK", mine)
    redis.call("ZREM", key.relays, relay)
  end
else
  redis.call("HSET", mine, "instance", instance)
  for at = 6, #ARGV, 2 do
    local field, value = ARGV[at], ARGV[at + 1]
    redis.call("HSET", mine, field, value)
  end
  redis.call("ZADD", key.relays, now, relay)
end
return other
