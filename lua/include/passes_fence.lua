-- The fence: whether the claim (relay, number) still holds the event with these fields. The hash keeps the number of
-- the last claim, so the state is checked too. A claim whose lease has ended holds its event until it is reaped.
local function passes_fence(state, claimed_by, claim, relay, number)
  return state == "CLAIMED" and claimed_by == relay and claim == number
end
