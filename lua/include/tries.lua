-- How many attempts were made since the event was put, or replayed with its attempts excused.
local function tries(attempts, earlier_attempts)
  return tonumber(attempts or 0) - tonumber(earlier_attempts or 0)
end
