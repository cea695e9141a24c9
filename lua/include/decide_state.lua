--- @include "as_number"
-- The state that the fields of an event and its index prove: a state that is proved by its own fields, or by the only
-- index that holds the event. A claim whose lease runs (`leased`) proves a lost state first. In doubt it is PENDING: the
-- event may be delivered twice, but is not lost.
local PROOF = { PUBLISHED = "published_at", DEAD = "died_at" }
local function decide_state(fields, only_index, leased)
  local state = fields.state
  if state ~= "PENDING" and state ~= "CLAIMED" and not PROOF[state or ""] then
    state = leased and "CLAIMED" or only_index and string.upper(only_index) or "PENDING"
  end
  if PROOF[state] then
    local proved = as_number(fields[PROOF[state]]) > 0
    return (proved or only_index == string.lower(state)) and state or "PENDING"
  end
  local claimed = as_number(fields.claim) > 0 and as_number(fields.claimed_at) > 0 and fields.claimed_by
  return state == "CLAIMED" and claimed and "CLAIMED" or "PENDING"
end
