#!lua flags=allow-oom
-- end_wait: ends one blocking wait early. No event changes.
--
-- Guarantee: the wait of this name ends, also if it begins after this call but within `keep`; no other wait does. A
-- token that no wait takes is removed after `keep`.
--
-- KEYS[1]   meta     hash; names the box
-- ARGV[1]   wait     name of the wait
-- ARGV[2]   keep     ms until an unused token is removed
--
-- Returns   1
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "open_box"

local wait, keep = ARGV[1], ARGV[2]
local _, refusal = open_box()
if refusal then
  return refusal
end
local token = wait_key .. wait
redis.call("RPUSH", token, "1")
redis.call("PEXPIRE", token, keep)
return 1
