-- The rank of the first member after (score, id) in a sorted set, by bisection: right also when that member is gone
-- and when thousands share the score.
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
