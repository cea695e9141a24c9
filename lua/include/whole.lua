-- A whole number as text. Redis formats a number given to it with all the digits of a float, which takes several times
-- as long; worth it where there is one per event.
local function whole(number)
  return string.format("%d", number)
end
