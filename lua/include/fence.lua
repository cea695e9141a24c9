-- The fence: true when the claim (claimed_by, number) still holds the event. The claim number of the last claim stays in
-- the hash, so the state is checked too. A lease that has ended still holds until somebody reaps it.
local function fence(event, relay, number)
  return event[1] == "CLAIMED" and event[2] == relay and event[3] == number
end
