--- @include "keys"
--- @include "format_integer"
--- @include "read_ramp"
-- The limit of a ramp, as limit_claims combines it; nil if there is none.
--
-- A ramp is a bucket of tokens, one for each event, that is filled ever faster: 1 a second at first, 10,000 a second at
-- the end. It holds what 250 ms bring, but at least one token. When it is empty, relays wait for what 100 ms bring, so
-- that they do not claim one event at a time. A ramp that is over, or whose length is damaged, is removed.
local FIRST_RATE, GROWTH, BURST, STEP = 0.001, math.log(10000), 250, 100
local function limit_by_ramp(settings, now)
  if not settings.ramp then
    return nil
  end
  local ramp = read_ramp(settings, now)
  if not ramp or ramp.elapsed >= ramp.length then
    redis.call("HDEL", key.meta, "ramp")
    if ramp then
      redis.call("HDEL", key.limits, "ramp_at", "ramp_elapsed", "ramp_tokens")
    end
    return nil
  end
  local growth = GROWTH / ramp.length
  local before, rate = FIRST_RATE * math.exp(growth * ramp.before), FIRST_RATE * math.exp(growth * ramp.elapsed)
  local tokens = math.min(ramp.tokens + (rate - before) / growth, math.max(1, rate * BURST))
  return {
    count = math.floor(tokens),
    spend = function(claimed)
      local left = tokens - claimed
      -- Also if nothing was claimed, when `at` says nothing about the time since: else the ramp would stand still.
      if claimed > 0 or ramp.at == 0 or ramp.at > now then
        redis.call("HSET", key.limits, "ramp_at", format_integer(now), "ramp_elapsed", format_integer(ramp.elapsed),
          "ramp_tokens", string.format("%.6f", math.floor(left * 1e6) / 1e6))
      end
      if left >= 1 then
        return now
      end
      local missing = math.max(1, rate * STEP) - left
      local wait = math.log(1 + missing * growth / rate) / growth
      return now + math.ceil(math.min(wait, ramp.length - ramp.elapsed))
    end,
  }
end
