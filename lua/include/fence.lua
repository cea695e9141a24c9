-- The fence: true when the claim (claimed_by, number) is still the one that holds the event. These fields tell of its
-- last claim; `state` tells whether that still holds. A lease past its end that nobody has reaped still does.
local function fence(event, relay, number)
  return event[1] == "CLAIMED" and event[2] == relay and event[3] == number
end
