--- @include "call_in_chunks"
--- @include "format_integer"
-- Takes the events of a claim, and the ids that are lost, out of their index. Unless they are a sample (`spread`), they
-- are the first of it.
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
