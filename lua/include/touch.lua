--- @include "keys"
-- Looks at keys of the box that are about to be written, each by a command of its type; at all of them unless told
-- which. A foreign type, or a cluster slot that is moving away, then fails here, before the first write, and not in the
-- middle. touch_event and touch_line do the same for what belongs to one event.
local LOOK = { counters = "HLEN", log = "XLEN", wake = "LLEN" }
local ALL = {
  "counters", "log", "wake", "pending", "waiting", "suspect", "claimed", "published", "dead", "retries", "blocked", "lost",
}
local function touch(names)
  for _, name in ipairs(names or ALL) do
    redis.call(LOOK[name] or "ZCARD", key[name])
  end
end
