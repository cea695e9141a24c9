--- @include "keys"
--- @include "as_number"
-- The ramp of the box: {length, elapsed, at, tokens}, times in ms, or nil if there is none. `at` is when it was last
-- updated: later than now during a pause that ends by itself, and after the server's clock was set back. Then no time
-- has elapsed since. `tokens` is how many events could be claimed then. Damaged values count as 0.
local function read_ramp(settings, now)
  local length = as_number(settings.ramp)
  if length == 0 then
    return nil
  end
  local at, elapsed, tokens = unpack(redis.call("HMGET", key.limits, "ramp_at", "ramp_elapsed", "ramp_tokens"))
  local last = as_number(at)
  tokens = tonumber(tokens or 0) or 0
  return {
    length = length,
    elapsed = as_number(elapsed) + (last > 0 and math.max(0, now - last) or 0),
    before = as_number(elapsed),
    at = last,
    tokens = tokens >= 0 and tokens or 0,
  }
end
