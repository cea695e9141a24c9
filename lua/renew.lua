#!lua flags=allow-oom
-- renew: CLAIMED stays CLAIMED, with a lease that ends `lease` from now.
--
-- Guarantee: fenced; a claim that is gone changes nothing. A claim renewed as `alone` is the only one of its relay:
-- if its lease expires, that counts against its event. Under max_in_flight, a lease that has ended is renewed only
-- if a place is free: its own may have been given away.
--
-- KEYS[1]   meta     hash; names the box
-- ARGV[1]   relay    name of the caller
-- ARGV[2]   lease    ms from now
-- ARGV[3]   alone    1 if the relay holds no other claim
-- ARGV[4]   id       then for each claim the following
-- ARGV[5]   number   its claim number
--
-- Returns   {now, reply...}: for each claim OK or LEASELOST
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "now_ms"
--- @include "open_box"
--- @include "passes_fence"
--- @include "call_in_chunks"
--- @include "increase_total"
--- @include "format_integer"
--- @include "raise_longest_lease"
--- @include "read_event"

local FIELDS = { "state", "claimed_by", "claim" }
local relay, lease, alone = ARGV[1], tonumber(ARGV[2]), ARGV[3] == "1"
local settings, refusal = open_box()
if refusal then
  return refusal
end
local now = now_ms()
local lease_until = format_integer(now + lease)
local replies, leases, left_alone, fenced = { now }, {}, {}, 0
local places
if settings.max_in_flight then
--- @include "count_places"
  places = count_places(settings, now)
end
for at = 4, #ARGV, 2 do
  local id, number = ARGV[at], ARGV[at + 1]
  local event = read_event(id, FIELDS)
  local ours = passes_fence(event.state, event.claimed_by, event.claim, relay, number)
  if ours and places and tonumber(redis.call("ZSCORE", key.claimed, id) or 0) <= now then
    ours, places = places > 0, places - 1
  end
  if ours then
    leases[#leases + 1] = lease_until
    leases[#leases + 1] = id
    if alone then
      left_alone[#left_alone + 1] = id
    end
    replies[#replies + 1] = "OK"
  else
    fenced = fenced + 1
    replies[#replies + 1] = "LEASELOST"
  end
end
redis.call("ZCARD", key.claimed)
redis.call("HLEN", key.counters)
call_in_chunks("ZADD", key.claimed, leases)
raise_longest_lease(settings, leases[1] and lease or 0)
for _, id in ipairs(left_alone) do
  redis.call("HSET", event_key .. id, "alone", "1")
end
increase_total("fenced", fenced)
return replies
