--- @include "in_chunks"
--- @include "whole"
-- Takes the events of a claim, and the ids that are lost, out of their index. Unless they are a sample (`spread`), they
-- are the first of it.
local function take_out(index, taken, lost, spread)
  if not spread then
    redis.call("ZREMRANGEBYRANK", index, "0", whole(#taken + #lost - 1))
    return
  end
  in_chunks("ZREM", index, taken)
  for _, item in ipairs(lost) do
    redis.call("ZREM", index, item[1])
  end
end
