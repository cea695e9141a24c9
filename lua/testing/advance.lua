#!lua
-- advance: for tests; moves all times of a box into the past, as if time had passed.
--
-- Guarantee: every stored time moves by the same amount; nothing else changes. Not bounded: for small boxes only.
--
-- KEYS[1]   meta     hash; names the box
-- ARGV[1]   by       ms
--
-- Returns   the number of events

--- @include "keys"

local by = tonumber(ARGV[1])
local moved = 0

local function shift(zset)
  local found = redis.call("ZRANGE", zset, 0, -1, "WITHSCORES")
  for at = 1, #found, 2 do
    local score = tonumber(found[at + 1])
    if score > 0 and score < math.huge then
      redis.call("ZADD", zset, score - by, found[at])
    end
  end
  return found
end

for _, name in ipairs({ "pending", "waiting", "suspect", "claimed", "published", "dead" }) do
  local found = shift(key[name])
  for at = 1, #found, 2 do
    local id = found[at]
    moved = moved + 1
    for _, field in ipairs({ "created_at", "available_at", "due_at", "claimed_at", "published_at", "died_at", "restored_at" }) do
      local value = redis.call("HGET", event_key .. id, field)
      if value then
        redis.call("HSET", event_key .. id, field, value - by)
      end
    end
    local unique = redis.call("HGET", event_key .. id, "unique_key")
    if unique then
      local score = redis.call("ZSCORE", unique_key .. unique, id)
      if score and tonumber(score) > 0 and tonumber(score) < math.huge then
        redis.call("ZADD", unique_key .. unique, score - by, id)
      end
    end
  end
end
shift(key.retries)
shift(key.blocked)
shift(key.relays)
shift(key.paused)
local since, ends = string.match(redis.call("HGET", key.meta, "paused") or "", "^(%d+)%-(%d*)$")
if since then
  redis.call("HSET", key.meta, "paused", string.format("%d-%s", since - by, ends ~= "" and string.format("%d", ends - by) or ""))
end
local first = tonumber(redis.call("HGET", key.meta, "keys_paused"))
if first and first < math.huge then
  redis.call("HSET", key.meta, "keys_paused", string.format("%d", first - by))
end
for _, field in ipairs({ "ramp_at", "rate_at" }) do
  local at = redis.call("HGET", key.limits, field)
  if at and at ~= "0" then
    redis.call("HSET", key.limits, field, string.format("%d", at - by))
  end
end
for step, slots in pairs({ [10000] = 370, [300000] = 298 }) do
  local ring, newest = rates_key .. step / 1000, {}
  local stored = redis.call("HGETALL", ring)
  for i = 2, #stored, 2 do
    local at, rest = string.match(stored[i], "^(%d+)(.*)$")
    local slot = math.floor((at - by) / step) % slots
    if not newest[slot] or newest[slot].at < at - by then
      newest[slot] = { at = at - by, rest = rest }
    end
  end
  redis.call("UNLINK", ring)
  for slot, sample in pairs(newest) do
    redis.call("HSET", ring, string.format("%d", slot), string.format("%d%s", sample.at, sample.rest))
  end
end
return moved
