#!lua flags=no-writes
-- check_permissions: what the user of this connection may not do with the keys of the box.
--
-- Guarantee: changes nothing. Redis does not roll back, so a script that writes must not find out half-way that it
-- lacks a permission: each client asks first, and again after a refusal.
--
-- KEYS[1]   meta       hash; names the box
-- ARGV[1]   kinds      the kinds of keys of a box, separated by spaces, as they follow the box's prefix
-- ARGV[2]   command    then for each command the following
-- ARGV[3]   arguments  how many it takes at least; a server may crash, or refuse, when it is asked with fewer
--
-- Returns   the commands that are not permitted, then each kind of key that may not be read or written, after a colon
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "open_box"

local kinds = ARGV[1]
local missing = {}

-- Every argument is a key of the box, whatever the command takes it for. A command that the server does not know raises
-- an error: it cannot be run either. Without the function, in servers before Redis 7, nothing is known to be missing.
local function permitted(command, arguments, kind)
  local given = {}
  for position = 1, arguments do
    given[position] = prefix .. ":" .. kind
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
-- What a key may be used for does not depend on the command, but on whether it reads or writes.
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
