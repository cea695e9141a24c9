#!lua flags=allow-oom
-- write_log: writes one line into the box's log, for what was done in many steps. No event changes.
--
-- Guarantee: all that a job did is in one line, with how many events it concerned and the first of their ids. A token
-- that is among the newest 250 lines of the log is not written again, so a call with a token can be repeated.
--
-- KEYS[1]   meta     hash; names the box
-- ARGV[1]   action   what was done, such as patch
-- ARGV[2]   who      the operator; "" writes no log
-- ARGV[3]   why      the operator's reason
-- ARGV[4]   count    how many events it concerned
-- ARGV[5]   detail   what else there is to say, in words
-- ARGV[6]   token    names this line; "" for none
-- ARGV[7]   id       then further ids
--
-- Returns   1, or 0 when nobody is named
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
record_action(action, who, why, ids[1] and ids, detail, total, token ~= "" and token)
return who == "" and 0 or 1
