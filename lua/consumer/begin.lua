#!lua
-- begin: starts or renews the handling of one delivery.
--
-- Guarantee: of all deliveries of an event, one at a time is handled, until one is finished; those after that are
-- duplicates. A delivery whose claim number is lower than one that began for this event, or for its ordering key, does not
-- begin. A refused call changes nothing. Repeating a call with its token is safe.
--
-- A record is a hash: `claim` is the highest number that began, and `token` names the handling that began last. `until`,
-- the end of its lease, is missing once it is finished.
--
-- KEYS[1]   record    hash; of the event
-- KEYS[2]   fence     string; the highest number that began for the ordering key; missing without one
-- ARGV[1]   token     names this handling
-- ARGV[2]   claim     claim number; "" if it is not known
-- ARGV[3]   lease     ms
-- ARGV[4]   remember  ms; how long the record and the fence are kept
--
-- Returns   {BEGUN, 0}, {DUPLICATE, 0}, {STALE, the higher number}, or {BUSY, ms until the lease of the other ends}

--- @include "now_ms"

local record, fence = KEYS[1], KEYS[2]
local token, claim, lease, remember = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

local stored = redis.call("HMGET", record, "claim", "token", "until")
local seen, holder, ends = stored[1], stored[2], tonumber(stored[3] or "0")
if seen and not stored[3] then
  return { "DUPLICATE", 0 }
end
local highest = fence and redis.call("GET", fence)
local number = tonumber(claim)
for _, other in ipairs({ seen or "", highest or "" }) do
  if number and tonumber(other) and number < tonumber(other) then
    return { "STALE", tonumber(other) }
  end
end
local now = now_ms()
if holder and holder ~= token and ends > now then
  return { "BUSY", ends - now }
end

redis.call("HSET", record, "claim", claim ~= "" and claim or seen or "", "token", token, "until",
  string.format("%.0f", now + lease))
redis.call("PEXPIRE", record, remember)
if fence and claim ~= "" then
  redis.call("SET", fence, claim, "PX", remember)
end
return { "BEGUN", 0 }
