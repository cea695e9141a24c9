-- Calls `command key args...` with at most 3,000 of the args at a time (an even number: pairs stay together), since
-- unpack is limited by the size of Lua's stack.
local function call_in_chunks(command, where, args)
  for first = 1, #args, 3000 do
    redis.call(command, where, unpack(args, first, math.min(first + 2999, #args)))
  end
end
