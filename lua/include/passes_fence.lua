-- The fence: true when the claim (relay, number) still holds an event, whose fields these are. The claim number of the
-- last claim stays in the hash, so the state is checked too. A lease that has ended still holds until somebody reaps it.
local function passes_fence(state, claimed_by, claim, relay, number)
  return state == "CLAIMED" and claimed_by == relay and claim == number
end
