#!lua flags=allow-oom
-- repair: mends everything that the box stores about one id, so that it keeps the rules of a consistent box.
--
-- Guarantee: no event is lost: in doubt it becomes PENDING, and may be delivered twice. The caller names what the body
-- of the event says; that counts only if neither the event nor its body changed since. A PENDING event without a body
-- cannot be delivered, and becomes DEAD. An id of which neither an event nor a body is left is removed. A claim whose
-- lease runs is never taken away. Repeating the call changes nothing.
--
-- KEYS[1]   meta          hash; names the box
-- ARGV[1]   dry           1 to change nothing
-- ARGV[2]   id
-- ARGV[3]   created_at    of the event when the caller read the body; "" if there was no event
-- ARGV[4]   size          bytes of the body that the caller read; 0 if there was none
-- ARGV[5]   event_type    in the body; "" if the body could not be read
-- ARGV[6]   ordering_key  in the body; "" for none
-- ARGV[7]   unique_key    in the body; "" for none
-- ARGV[8]   unique_scope  in the body; "" for none
--
-- Returns   what was done, or would be done, in words; nothing if nothing had to be done
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "now_ms"
--- @include "open_box"
--- @include "examine_id"
--- @include "forget_id"
--- @include "restore_event"
--- @include "mend_fields"
--- @include "mend_state"
--- @include "plan_place"
--- @include "plan_index"
--- @include "check_keys"
--- @include "check_event_keys"
--- @include "as_number"
--- @include "format_integer"
--- @include "write_fields"
--- @include "requeue"
--- @include "enqueue"
--- @include "add_history"
--- @include "increase_total"
--- @include "send_hint"
--- @include "read_paused_keys"
--- @include "note_paused_keys"

local dry, id, seen, size = ARGV[1] == "1", ARGV[2], ARGV[3], tonumber(ARGV[4])
local event_type, ordering_key, its_unique_key, unique_scope = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local settings, refusal = open_box()
if refusal then
  return refusal
end
local now, item = now_ms(), examine_id(id)
local fields, before, done = item.fields, item.before, item.done
local noted, unnoted = read_paused_keys()
local known = event_type ~= "" and item.body == size and (fields.created_at or "") == seen
  and { event_type = event_type, ordering_key = ordering_key, unique_key = its_unique_key, unique_scope = unique_scope }
if not item.stored then
  if item.body == 0 then
    forget_id(item, dry)
    return done
  elseif not known then
    return done -- its body cannot be read, or something changed meanwhile
  end
  restore_event(item, now)
end
mend_fields(item, known, now)
local state, dies = mend_state(item, now)

local counters = redis.call("HMGET", key.counters, "claimed", "seq")
local claims_made, given_out = as_number(counters[1]), as_number(counters[2])
local ordering, unique, left, released = fields.ordering_key, fields.unique_key, before.ordering_key, before.unique_key
local place, old_head, head, other = nil, nil, nil, nil
if ordering then
  place, old_head, head, other = plan_place(item, state, settings, given_out)
end
local plan = plan_index(item, state, head, settings, now)
if item.history > HISTORY then
  done[#done + 1] = "its history is shortened"
end
if as_number(fields.claim) > claims_made then
  done[#done + 1] = "claim numbers go on after " .. fields.claim
end
if unnoted then
  done[#done + 1] = "meta notes which ordering keys are paused"
end
check_keys()
check_event_keys(id, ordering, unique)
check_event_keys(id, left, released)
if dry or not done[1] then
  return done
end

keys_paused = noted
note_paused_keys()
write_fields(item)
if as_number(fields.claim) > claims_made then
  redis.call("HSET", key.counters, "claimed", fields.claim)
end
if left and left ~= ordering then
  redis.call("ZREM", line_key .. left, id)
  local following = redis.call("ZRANGE", line_key .. left, 0, 0)[1]
  if following then
    requeue(following, left, now)
  end
end
for _, set in ipairs(SETS) do
  redis.call("ZREM", key[set], id)
end
if place then
  if place > given_out then
    redis.call("HSET", key.counters, "seq", format_integer(place))
  end
  redis.call("ZADD", line_key .. ordering, format_integer(place), id)
elseif ordering then
  redis.call("ZREM", line_key .. ordering, id)
end
if head ~= old_head then
  redis.call("ZREM", key.blocked, ordering)
  if other then
    requeue(other, ordering, now)
  end
end
if head == id and dies then
  redis.call("ZADD", key.blocked, now, ordering)
end
for _, held in ipairs({ released or unique, unique }) do
  redis.call("ZREM", unique_key .. held, id)
end
if state == "PENDING" then
  enqueue(id, plan.available_at, plan.tried, plan.expiries, ordering, unique)
else
  redis.call("ZADD", key[plan.index], plan.score, id)
  if state == "CLAIMED" and unique then
    redis.call("ZADD", unique_key .. unique, "+inf", id)
  end
end
if dies then
  add_history(id, now, fields.claim, "died", "", "body missing")
  increase_total("dead", 1)
elseif not item.stored then
  add_history(id, now, "0", "replayed", "", "restored from its body")
end
redis.call("LTRIM", history_key .. id, "-" .. HISTORY, "-1")
send_hint()
return done
