-- Calls `command key args...` with at most 3,000 of the args at a time, because Lua's stack limits unpack. The
-- number is even, so that pairs stay together.
local function call_in_chunks(command, where, args)
  for first = 1, #args, 3000 do
    redis.call(command, where, unpack(args, first, math.min(first + 2999, #args)))
  end
end
