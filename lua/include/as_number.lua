-- A count that a hash holds: a plain whole number of at most 15 digits. Without one, and where something else wrote
-- another text, it is 0: a script that failed there would stop in the middle, and again for the other events of the
-- call.
local function as_number(text)
  return text and #text <= 15 and not string.find(text, "%D") and tonumber(text) or 0
end
