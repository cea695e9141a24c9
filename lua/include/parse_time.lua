-- Reads a time argument, in ms: "" is now, "+250" is 250 ms from now, "1700000000000" is that time. A time in the
-- past becomes now.
local function parse_time(argument, now)
  if argument == "" then
    return now
  end
  if string.sub(argument, 1, 1) == "+" then
    return now + tonumber(string.sub(argument, 2))
  end
  return math.max(now, tonumber(argument))
end
