-- A whole number as text. redis.call formats a number with all the digits of a float, which takes as long as a small
-- command. So the hot scripts pass text, and "0" instead of 0.
local function format_integer(number)
  return string.format("%d", number)
end
