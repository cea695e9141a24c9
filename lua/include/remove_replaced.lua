--- @include "keys"
--- @include "leave_line"
--- @include "erase_events"
-- Removes the stored events that a put replaces. They were never claimed, so they are in `pending` or `waiting` only. The
-- caller has checked their keys. Returns the offsets of the events to be written: `created` without those replaced.
local function remove_replaced(replacing, created, now)
  local ids, left = {}, {}
  for _, event in ipairs(replacing.removed) do
    redis.call("ZREM", key.pending, event.id)
    redis.call("ZREM", key.waiting, event.id)
    redis.call("ZREM", unique_key .. event.unique, event.id)
    if event.ordering then
      leave_line(event.id, event.ordering, now)
    end
    ids[#ids + 1] = event.id
  end
  erase_events(ids)
  for _, at in ipairs(created) do
    if not replacing.unwritten[at] then
      left[#left + 1] = at
    end
  end
  return left
end
