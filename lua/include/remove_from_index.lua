--- @include "call_in_chunks"
--- @include "format_integer"
-- Removes the ids of a claim, taken and lost, from their index. Unless they are a sample (`spread`), they are its
-- first members.
local function remove_from_index(index, taken, lost, spread)
  if not spread then
    redis.call("ZREMRANGEBYRANK", index, "0", format_integer(#taken + #lost - 1))
    return
  end
  call_in_chunks("ZREM", index, taken)
  for _, item in ipairs(lost) do
    redis.call("ZREM", index, item[1])
  end
end
