--- @include "keys"
--- @include "leave_line"
--- @include "call_in_chunks"
--- @include "erase_events"
--- @include "increase_total"
--- @include "send_hint"
-- Moves acknowledged events, whose hashes are already written, from claimed to published, or removes them with
-- `delete`. The next events of their lines become available.
local function finish_ack(acked, settings, delete, published_at, now)
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
    erase_events(ids)
  else
    for i = 1, #ids do
      published[2 * i - 1], published[2 * i] = published_at, ids[i]
    end
    call_in_chunks("ZADD", key.published, published)
  end
  call_in_chunks("ZREM", key.claimed, ids)
  increase_total("published", #ids)
  increase_total("swept", delete and #ids or 0)
  increase_total("fenced", acked.fenced)
  if settings.max_in_flight then
--- @include "note_room"
    note_room(settings, #ids, now)
  end
  send_hint()
end
