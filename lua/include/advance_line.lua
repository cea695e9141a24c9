--- @include "keys"
--- @include "read_event"
--- @include "enqueue"
--- @include "count_attempts"
--- @include "as_number"
--- @include "read_available_at"
--- @include "note_paused_keys"
-- Makes the first event of a line its head: moves it from waiting to pending or suspect. An id without an event is
-- moved to lost, and the next one becomes the head. A script moves 1,000 of them. Then it notes the key in `paused` as
-- one whose pause is over now: the next claim or reap ends that pause, and so continues here. An earlier pause of the
-- key remains as it is, and continues here when it ends. It notes the key too if an event behind lost ones has a foreign
-- type: the caller has checked only the first, and must not stop between its writes.
local HEAD_FIELDS = { "created_at", "available_at", "attempts", "expiries", "earlier_attempts" }
local lost_left = 1000
local function advance_line(ordering_key, now)
  while true do
    local id = redis.call("ZRANGE", line_key .. ordering_key, "0", "0")[1]
    if not id then
      return
    end
    local sound, event = pcall(read_event, id, HEAD_FIELDS)
    -- pcall, because not every caller has looked at `paused`: if that is a foreign key, there is no place for the note.
    if (not sound or not event.created_at and lost_left <= 0)
      and type(redis.pcall("ZADD", key.paused, "NX", now, ordering_key)) == "number" then
      redis.call("ZADD", key.waiting, "NX", now, id)
      note_paused_keys()
      return
    elseif not sound then
      return
    end
    redis.call("ZREM", key.waiting, id)
    if event.created_at then
      local available_at = read_available_at(event.available_at, event.created_at, now)
      local tried = count_attempts(event.attempts, event.earlier_attempts)
      enqueue(id, available_at, tried, as_number(event.expiries), ordering_key, false)
      return
    end
    lost_left = lost_left - 1
    redis.call("ZREM", line_key .. ordering_key, id)
    redis.call("ZREM", key.retries, id)
    redis.call("ZADD", key.lost, now, id)
  end
end
