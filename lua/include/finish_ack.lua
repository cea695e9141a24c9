--- @include "keys"
--- @include "leave_line"
--- @include "in_chunks"
--- @include "erase"
--- @include "count"
--- @include "hint"
-- Moves acknowledged events, whose hashes are written, from claimed to published, or removes them for `delete`. The next
-- events of their lines become available.
local function finish_ack(acked, delete, published_at, now)
  local ids, published = acked.ids, {}
  for _, event in ipairs(acked.keyed) do
    if event.ordering then
      leave_line(event.id, event.ordering, now)
    end
    if event.unique then
      redis.call("ZREM", unique_key .. event.unique, event.id)
    end
  end
  if delete then
    erase(ids)
  else
    for position = 1, #ids do
      published[2 * position - 1], published[2 * position] = published_at, ids[position]
    end
    in_chunks("ZADD", key.published, published)
  end
  in_chunks("ZREM", key.claimed, ids)
  count("published", #ids)
  count("swept", delete and #ids or 0)
  count("fenced", acked.fenced)
  hint()
end
