-- Reads a time argument: "" is now, "+250" is in 250 ms, "1700000000000" is that moment; the past is clamped to now.
local function parse_time(argument, now)
  if argument == "" then
    return now
  end
  if string.sub(argument, 1, 1) == "+" then
    return now + tonumber(string.sub(argument, 2))
  end
  return math.max(now, tonumber(argument))
end
