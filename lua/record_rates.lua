#!lua flags=allow-oom
-- record_rates: samples the totals of the box, and adds latencies, for the history of its rates.
--
-- Guarantee: changes only the two rings of samples: one slot per 10 s for an hour, and one per 5 min for a day. Each
-- slot holds the totals at its last call, so any number of callers agree, and the sum of all latencies. The first call
-- also fills the slot before, so that the growth within its own slot is known. A ring that nobody writes to is removed
-- when its last slot is too old. A box that does not exist is left alone.
--
-- KEYS[1]   meta      hash; names the box
-- ARGV[1]   new       "1" if the box did not exist at the caller's last call: all totals were 0
-- ARGV[2]   bound     then for each bucket of latencies the following; its upper bound in ms
-- ARGV[3]   count     events to add to the bucket
--
-- Returns   1, or 0 if the box does not exist
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "now_ms"
--- @include "open_box"
--- @include "as_number"
--- @include "format_integer"

local RINGS = { { step = 10000, slots = 370 }, { step = 300000, slots = 298 } }
local MOST_BUCKETS = 64
local new = ARGV[1]
local settings, refusal = open_box()
if refusal then
  return refusal
end
if not settings.exists then
  return 0
end
local now = now_ms()
local totals = redis.call("HMGET", key.counters, "put", "published", "retried", "dead", "expired")
for at = 1, 5 do
  totals[at] = format_integer(as_number(totals[at]))
end
local sample = " " .. table.concat(totals, " ")
local first = new == "1" and " 0 0 0 0 0" or sample

-- The latencies of a slot: its own, if it is of this round of the ring, and those that are added.
local function add_latencies(before, period, step)
  local names, counts = {}, {}
  local function add(bound, count)
    if not counts[bound] and #names < MOST_BUCKETS then
      names[#names + 1] = bound
      counts[bound] = 0
    end
    if counts[bound] then
      counts[bound] = counts[bound] + count
    end
  end
  local written = as_number(before and string.match(before, "^%d+"))
  if math.floor(written / step) == period then
    for bound, count in string.gmatch(before, " ([^ ]+):(%d+)") do
      add(bound, as_number(count))
    end
  end
  for at = 2, #ARGV, 2 do
    local bound, count = ARGV[at], as_number(ARGV[at + 1])
    add(bound, count)
  end
  for i, bound in ipairs(names) do
    names[i] = " " .. bound .. ":" .. format_integer(counts[bound])
  end
  return table.concat(names)
end

for _, ring in ipairs(RINGS) do
  ring.key = rates_key .. ring.step / 1000
  ring.period = math.floor(now / ring.step)
  ring.slot = format_integer(ring.period % ring.slots)
  ring.begins = redis.call("HLEN", ring.key) == 0
  ring.latencies = add_latencies(redis.call("HGET", ring.key, ring.slot), ring.period, ring.step)
end
for _, ring in ipairs(RINGS) do
  if ring.begins then
    local slot_before = format_integer((ring.period - 1) % ring.slots)
    redis.call("HSET", ring.key, slot_before, format_integer(ring.period * ring.step - 1) .. first)
  end
  redis.call("HSET", ring.key, ring.slot, format_integer(now) .. sample .. ring.latencies)
  redis.call("PEXPIRE", ring.key, format_integer(ring.step * ring.slots))
end
return 1
