--- @include "keys"
--- @include "format_integer"
-- Stores the longest lease that was given: no lease ends later than that from now. So `reap` recognizes a lease that
-- was given before the server's clock was set back.
local function raise_longest_lease(settings, lease)
  if lease > settings.longest_lease then
    redis.call("HSET", key.meta, "longest_lease", format_integer(lease))
  end
end
