--- @include "limit_by_ramp"
--- @include "limit_by_rate"
--- @include "limit_in_flight"
-- How many events may be claimed now, by all relays together: nil for any number, else {count, spend}. Of several
-- limits the smallest holds. `spend`, to be called once with the number of claimed events and when the next event is due
-- (-1 for never), counts them. It returns when the next claim is worthwhile, in ms, and the limit that holds due events
-- back until then: 0 for none, 1 for one that time lifts (ramp, max_rate), 2 for max_in_flight.
--
-- An event that is due later is not held back yet. Nobody sends a hint if a place becomes free before it is due, so
-- relays then look at that time. An event due within milliseconds, as after a retry without a delay, counts as due.
local IMMINENT = 10
local function limit_claims(settings, now)
  local limits, count = {}, math.huge
  limits[#limits + 1] = limit_by_ramp(settings, now)
  limits[#limits + 1] = limit_by_rate(settings, now)
  limits[#limits + 1] = limit_in_flight(settings, now)
  for _, limit in ipairs(limits) do
    count = math.min(count, limit.count)
  end
  return limits[1] and {
    count = count,
    spend = function(claimed, next_at)
      local earliest, reached = now, 0
      for _, limit in ipairs(limits) do
        local worthwhile = limit.spend(claimed)
        if worthwhile > now then
          earliest, reached = math.max(earliest, worthwhile), math.max(reached, limit.kind or 1)
        end
      end
      if reached == 0 or next_at < 0 or (reached == 2 and next_at > now) then
        return next_at, 0
      elseif next_at > now + IMMINENT then
        return math.max(next_at, earliest), 0
      end
      return earliest, reached
    end,
  }
end
