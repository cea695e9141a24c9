-- A count that an event's hash holds: 0 without one, and where something else wrote what is no number. A script that fails
-- there would stop in the middle, and again for every other event of the same call.
local function as_number(text)
  return tonumber(text) or 0
end
