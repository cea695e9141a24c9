-- A whole number as text. A number given to redis.call is formatted with all the digits of a float, which takes as long
-- as a small command: the scripts that run all the time give text, "0" for 0.
local function format_integer(number)
  return string.format("%d", number)
end
