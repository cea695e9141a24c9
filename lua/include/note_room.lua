--- @include "keys"
--- @include "as_number"
--- @include "find_next_due"
--- @include "send_hint"
-- Makes send_hint wake a relay if max_in_flight was reached before this script ended `ended` claims, and an event is
-- due. The claims are already removed from `claimed`. Claims whose leases have ended are counted too: a hint too many
-- does no harm.
local function note_room(settings, ended, now)
  local most = as_number(settings.max_in_flight)
  if most == 0 or ended == 0 or redis.call("ZCARD", key.claimed) + ended < most then
    return
  end
  local next_at = find_next_due()
  if next_at >= 0 and next_at <= now then
    soonest = math.min(soonest, next_at)
  end
end
