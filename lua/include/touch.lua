--- @include "keys"
-- Looks at the box's own keys that are about to be written, each by a command of its type. A foreign type, or a cluster
-- slot that is moving away, then fails here, before the first write, and not in the middle. touch_event and touch_line
-- do the same for what belongs to one event.
local function touch()
  redis.call("HLEN", key.counters)
  redis.call("XLEN", key.log)
  redis.call("LLEN", key.wake)
  for _, name in ipairs({ "pending", "waiting", "suspect", "claimed", "published", "dead", "retries", "blocked", "lost" }) do
    redis.call("ZCARD", key[name])
  end
end
