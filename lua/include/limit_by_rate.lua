--- @include "keys"
--- @include "format_integer"
--- @include "read_rate"
-- The limit max_rate, as limit_claims combines it; nil if there is none. A bucket of tokens, one for each event, is
-- filled at a steady rate, so no time of any length has more claims than the bucket holds and the rate brings. When it
-- is empty, relays wait for what 100 ms bring, so that they do not claim one event at a time.
local RATE_STEP = 100
local function limit_by_rate(settings, now)
  local bucket = read_rate(settings, now)
  return bucket and {
    count = math.floor(bucket.tokens),
    spend = function(claimed)
      local left = bucket.tokens - claimed
      -- Also if nothing was claimed, when `at` says nothing about the time since: else no token would be added.
      if claimed > 0 or bucket.at == 0 or bucket.at > now then
        redis.call("HSET", key.limits, "rate_at", format_integer(now),
          "rate_tokens", string.format("%.6f", math.floor(left * 1e6) / 1e6))
      end
      if left >= 1 then
        return now
      end
      local wanted = math.min(bucket.burst, math.max(1, bucket.rate * RATE_STEP))
      return now + math.ceil((wanted - left) / bucket.rate)
    end,
  }
end
