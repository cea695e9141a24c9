#!lua flags=allow-oom
-- configure: writes settings of the box. No event changes its state.
--
-- Guarantee: when the dead-head policy becomes "skip", lines blocked by a dead head are unblocked, `limit` of them
-- per call; `reap` unblocks the others if the caller does not come back. Wakes up to 100 idle relays.
--
-- KEYS[1]   meta     hash; names the box
-- ARGV[1]   action   for the log
-- ARGV[2]   who      the operator; "" writes no log
-- ARGV[3]   why      the operator's reason
-- ARGV[4]   limit    maximum of blocked lines to unblock
-- ARGV[5]   field    then for each setting the following
-- ARGV[6]   value    "" removes it
--
-- Returns   number of lines that are still to be unblocked
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "now_ms"
--- @include "open_box"
--- @include "check_keys"
--- @include "check_line_keys"
--- @include "unblock_line"
--- @include "record_action"
--- @include "wake_relays"

local action, who, why, limit = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local _, refusal = open_box()
if refusal then
  return refusal
end
check_keys()
local blocked = redis.call("ZRANGE", key.blocked, 0, limit - 1)
for _, ordering in ipairs(blocked) do
  check_line_keys(ordering, 1)
end
redis.call("HLEN", key.limits)

redis.call("HSETNX", key.meta, "layout", LAYOUT)
local changes = {}
for at = 5, #ARGV, 2 do
  local field, value = ARGV[at], ARGV[at + 1]
  if value == "" then
    redis.call("HDEL", key.meta, field)
    if field == "max_rate" then
      redis.call("HDEL", key.limits, "rate_at", "rate_tokens")
    end
  else
    redis.call("HSET", key.meta, field, value)
  end
  changes[#changes + 1] = field .. "=" .. value
end
record_action(action, who, why, nil, table.concat(changes, " "))
wake_relays()
if open_box().blocks then
  return 0
end
local now = now_ms()
for _, ordering in ipairs(blocked) do
  unblock_line(ordering, now)
end
return redis.call("ZCARD", key.blocked)
