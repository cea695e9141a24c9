--- @include "keys"
-- Looks at every key that is about to be written: the box's own by a command of their type, then `others`. A foreign
-- type, or a cluster slot that is moving away, then fails here, before the first write, and not in the middle.
local function touch(others)
  redis.call("HLEN", key.counters)
  redis.call("XLEN", key.log)
  for _, name in ipairs({ "pending", "waiting", "suspect", "claimed", "published", "dead", "retries", "blocked", "lost" }) do
    redis.call("ZCARD", key[name])
  end
  for first = 1, #others, 3000 do
    redis.call("EXISTS", unpack(others, first, math.min(first + 2999, #others)))
  end
end
