--- @include "count_places"
-- The limit max_in_flight, as limit_claims combines it; nil if there is none, or if it is damaged. Nothing is counted:
-- the claims themselves are, so a relay that ends gives its places back when its leases end. Nobody knows when a
-- place becomes free. The script that ends a claim sends a hint then, and a relay that misses it looks again by itself.
local LOOK_AGAIN = 5000
local function limit_in_flight(settings, now)
  local free = count_places(settings, now)
  return free and {
    count = free,
    kind = 2,
    spend = function(claimed)
      return claimed < free and now or now + LOOK_AGAIN
    end,
  }
end
