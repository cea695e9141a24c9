--- @include "keys"
--- @include "as_number"
-- The bucket of max_rate, or nil if the box has no such limit: `rate` in events per ms; `burst`, how many tokens it
-- holds; how many `tokens` are in it now; and when it was last updated, `at`, in ms. A bucket without a state, or
-- with a damaged one, begins with one token. Nothing is added while `at` is later than now, after the server's clock
-- was set back. A damaged max_rate is no limit. redbox/rates.py reads the same text.
local RATE_UNITS = { s = 1000, min = 60000, h = 3600000, d = 86400000 }
local RATE_BURST, HIGHEST_RATE, LARGEST_BURST = 250, 1000, 1e9
local function read_rate(settings, now)
  local number, unit = string.match(settings.max_rate or "", "^(%d+%.?%d*)/(%a+)$")
  local rate = RATE_UNITS[unit] and (tonumber(number) or 0) / RATE_UNITS[unit] or 0
  if rate <= 0 or rate > HIGHEST_RATE then
    return nil
  end
  local most = as_number(redis.call("HGET", key.meta, "max_burst"))
  local burst = most > 0 and most or math.max(1, rate * RATE_BURST)
  local last, left = unpack(redis.call("HMGET", key.limits, "rate_at", "rate_tokens"))
  local at, tokens = as_number(last), tonumber(left or 0) or 0
  if at == 0 then
    tokens = 1
  elseif not (tokens >= 0 and tokens <= LARGEST_BURST) then
    tokens = 0
  end
  if at > 0 and at < now then
    tokens = tokens + rate * (now - at)
  end
  return { rate = rate, burst = burst, at = at, tokens = math.min(burst, tokens) }
end
