--- @include "keys"
--- @include "as_number"
-- The ramp of the box, or nil if there is none: its `length`; how much of it has `elapsed`, and had elapsed `before`,
-- when it was last updated, `at`; all in ms; and how many `tokens` there were then. `at` is later than now during a
-- pause that ends by itself, and after the server's clock was set back; it is 0 during a pause without an end: then
-- nothing has elapsed since. Damaged values count as 0.
local function read_ramp(settings, now)
  local length = as_number(settings.ramp)
  if length == 0 then
    return nil
  end
  local last, done, left = unpack(redis.call("HMGET", key.limits, "ramp_at", "ramp_elapsed", "ramp_tokens"))
  local at, before, tokens = as_number(last), as_number(done), tonumber(left or 0) or 0
  return {
    length = length,
    elapsed = before + (at > 0 and math.max(0, now - at) or 0),
    before = before,
    at = at,
    tokens = tokens >= 0 and tokens or 0,
  }
end
