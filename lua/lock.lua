#!lua flags=allow-oom
-- lock: one at a time for a job on the box. No event changes.
--
-- Guarantee: whoever holds it keeps it by asking again; it ends by itself some time after the last asking. Whoever asks
-- only to keep it never takes it: another may have held it in between.
--
-- KEYS[1]   meta     hash; names the box
-- ARGV[1]   job      name
-- ARGV[2]   action   take | keep | free
-- ARGV[3]   token    of the asker
-- ARGV[4]   holds    ms
--
-- Returns   the token of who holds it now, or ""
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "open_box"

local job, action, token, holds = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local _, refusal = open_box()
if refusal then
  return refusal
end
local where = lock_key .. job
local holder = redis.call("GET", where)
if holder ~= token and (holder or action ~= "take") then
  return holder or ""
end
if action == "free" then
  redis.call("DEL", where)
  return ""
end
redis.call("PSETEX", where, holds, token)
return token
