-- The rank of the first member after (score, id) in a sorted set, found by bisection. It does not matter whether
-- that member still exists, or how many members share the score.
local function find_rank_after(index, score, id)
  local low, high = 0, redis.call("ZCARD", index)
  score = tonumber(score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local at = redis.call("ZRANGE", index, middle, middle, "WITHSCORES")
    local there = tonumber(at[2])
    if there < score or (there == score and at[1] <= id) then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end
