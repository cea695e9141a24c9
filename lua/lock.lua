#!lua flags=allow-oom
-- lock: lets one process at a time do a job on the box. No event changes.
--
-- Guarantee: the holder keeps the lock by calling again; it ends by itself `holds` after the last call. A call that
-- only keeps the lock never takes it: another process may have held it in between.
--
-- KEYS[1]   meta     hash; names the box
-- ARGV[1]   job      name
-- ARGV[2]   action   take | keep | free
-- ARGV[3]   token    of the caller
-- ARGV[4]   holds    ms until the lock ends by itself
--
-- Returns   the token of the holder, or ""
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
