#!lua flags=no-writes
-- get: reads whole events by id.
--
-- Guarantee: changes nothing. Each event is consistent in itself.
--
-- KEYS[1]   meta     hash; names the box
-- ARGV[1]   id       then further ids
--
-- Returns   {now, event...}: each {id, fields and values, body, end of its lease, waiting | suspect | "",
--           history} or false
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "now_ms"
--- @include "open_box"
--- @include "describe_event"

local _, refusal = open_box()
if refusal then
  return refusal
end
local reply = { now_ms() }
for at = 1, #ARGV do
  reply[#reply + 1] = describe_event(ARGV[at]) or false
end
return reply
