-- The fence: true when the claim (claimed_by, number) is still the one that holds the event. A lease past its end that
-- nobody has reaped still holds.
local function fence(event, relay, number)
  return event[1] == "CLAIMED" and event[2] == relay and event[3] == number
end
