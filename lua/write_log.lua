#!lua flags=allow-oom
-- write_log: writes one entry into the box's log, for an action that took many steps. No event changes.
--
-- Guarantee: the whole job is one entry, with the number of events and the first of their ids. A token that is among
-- the newest 250 entries is not written again, so a call with a token can be repeated.
--
-- KEYS[1]   meta     hash; names the box
-- ARGV[1]   action   such as patch
-- ARGV[2]   who      the operator; "" writes no log
-- ARGV[3]   why      the operator's reason
-- ARGV[4]   count    number of events
-- ARGV[5]   detail   more about it, in words
-- ARGV[6]   token    identifies the entry; "" for none
-- ARGV[7]   id       then further ids
--
-- Returns   1, or 0 if `who` is ""
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "open_box"
--- @include "record_action"

local action, who, why, total, detail, token = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local NEWEST = 250
local _, refusal = open_box()
if refusal then
  return refusal
end
if token ~= "" then
  for _, entry in ipairs(redis.call("XREVRANGE", key.log, "+", "-", "COUNT", NEWEST)) do
    local fields = entry[2]
    if fields[#fields - 1] == "token" and fields[#fields] == token then
      return 1
    end
  end
end
local ids = {}
for at = 7, #ARGV do
  ids[#ids + 1] = ARGV[at]
end
record_action(action, who, why, ids[1] and ids, detail, total, token)
return who == "" and 0 or 1
