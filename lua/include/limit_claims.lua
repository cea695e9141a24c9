--- @include "limit_by_ramp"
--- @include "limit_by_rate"
--- @include "limit_in_flight"
-- How many events may be claimed now, by all relays together: nil for any number, else {count, spend}. `spend`, to be
-- called once with the number of claimed events, counts them. It returns when the next claim is worthwhile, in ms, and
-- which limit is reached: 0 for none, 1 for one that time lifts (ramp, max_rate), 2 for max_in_flight. Of several
-- limits the smallest holds.
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
    spend = function(claimed)
      local earliest, reached = now, 0
      for _, limit in ipairs(limits) do
        local worthwhile = limit.spend(claimed)
        if worthwhile > now then
          earliest, reached = math.max(earliest, worthwhile), math.max(reached, limit.kind or 1)
        end
      end
      return earliest, reached
    end,
  }
end
