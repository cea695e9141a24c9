--- @include "find_rank_after"
-- The rank of the first member of an index with a score of at least `since` ("" for any), after the position (score,
-- id) ("" for the beginning).
local function find_first_rank(index, since, score, id)
  local first = since ~= "" and redis.call("ZCOUNT", index, "-inf", "(" .. since) or 0
  return score ~= "" and math.max(first, find_rank_after(index, score, id)) or first
end
