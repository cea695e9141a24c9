#!lua flags=allow-oom
-- lock: one at a time for a job on the box. No event changes.
--
-- Guarantee: whoever holds it keeps it by asking again; it ends by itself some time after the last asking.
--
-- KEYS[1]   meta     hash; names the box
-- ARGV[1]   job      name
-- ARGV[2]   token    of the asker
-- ARGV[3]   holds    ms; 0 gives it back
--
-- Returns   the token of who holds it now, or ""
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "open_box"

local where, token, holds = prefix .. ":lock:" .. ARGV[1], ARGV[2], ARGV[3]
local _, refusal = open_box()
if refusal then
  return refusal
end
local holder = redis.call("GET", where)
if holder and holder ~= token then
  return holder
end
if holds == "0" then
  redis.call("DEL", where)
  return ""
end
redis.call("PSETEX", where, holds, token)
return token
