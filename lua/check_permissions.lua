#!lua flags=no-writes
-- check_permissions: lists what the user of this connection may not do with the keys of the box.
--
-- Guarantee: changes nothing. Redis does not roll back, so a script must not fail between two writes because it
-- lacks a permission: each client checks first, and again after a refusal.
--
-- KEYS[1]   meta       hash; names the box
-- ARGV[1]   kinds      the kinds of keys of a box, without the box's prefix, separated by spaces
-- ARGV[2]   command    then for each command the following
-- ARGV[3]   arguments  minimum number; with fewer a server may crash, or refuse the check
--
-- Returns   the commands that are not permitted, then a colon and the kind for each key that may not be read or written
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "open_box"

local kinds = ARGV[1]
local missing = {}

-- Every argument is a key of the box, whatever the command uses it for. An unknown command raises an error, and counts
-- as not permitted. Servers before Redis 7 do not have the function: there everything counts as permitted.
local function permitted(command, arguments, kind)
  local given = {}
  for i = 1, arguments do
    given[i] = prefix .. ":" .. kind
  end
  local known, allowed = pcall(redis.acl_check_cmd, command, unpack(given))
  return known and allowed or not redis.acl_check_cmd
end

for at = 2, #ARGV, 2 do
  local command, arguments = ARGV[at], tonumber(ARGV[at + 1])
  if not permitted(command, arguments, "meta") then
    missing[#missing + 1] = command
  end
end
-- The permission for a key depends on whether a command reads or writes it, not on the command itself.
local reads, writes = permitted("HGET", 2, "meta"), permitted("HSET", 3, "meta")
for kind in string.gmatch(kinds, "%S+") do
  if reads and not permitted("HGET", 2, kind) or writes and not permitted("HSET", 3, kind) then
    missing[#missing + 1] = ":" .. kind
  end
end
if missing[1] then
  return missing
end
local _, refusal = open_box()
return refusal or missing
