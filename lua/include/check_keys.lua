--- @include "keys"
--- @include "open_box"
-- Reads keys of the box that are about to be written, each by a command of its type: the given ones, or all. A
-- foreign type, or a cluster slot that is moving away, then fails here, before the first write, and not between two
-- writes. check_event_keys and check_line_keys do the same for the keys of one event.
local function check_keys(names)
  if keys_paused then
    redis.call("ZCARD", key.paused)
  end
  names = names or { "log", "wake", "alone", "counters", "pending", "waiting", "suspect", "claimed", "published",
    "dead", "retries", "blocked", "lost" }
  for _, name in ipairs(names) do
    if name == "counters" then
      redis.call("HLEN", key[name])
    elseif name == "wake" then
      redis.call("LLEN", key[name])
    elseif name == "log" then
      redis.call("XLEN", key[name])
    elseif name == "alone" then
      redis.call("STRLEN", key[name])
    else
      redis.call("ZCARD", key[name])
    end
  end
end
