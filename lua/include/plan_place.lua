--- @include "keys"
--- @include "as_number"
--- @include "change_field"
--- @include "count_attempts"
--- @include "format_integer"
--- @include "mend_fields"
--- @include "read_event"
-- Decides which place in its line an event is to have: its seq, unless that was never given out; then the place that
-- it has; else the tail. Returns the place or nil, the head before, the head afterwards, and the first of the other
-- members.
local function plan_place(item, state, settings, given_out)
  local line, id, fields = line_key .. item.fields.ordering_key, item.id, item.fields
  local own, ahead = redis.call("ZSCORE", line, id), redis.call("ZRANGE", line, 0, 1, "WITHSCORES")
  local old_head, at = ahead[1], ahead[1] == id and 3 or 1
  local other, other_place = ahead[at], tonumber(ahead[at + 1])
  local ahead_of = other and read_event(other, { "state", "attempts", "earlier_attempts" })

  -- An event never passes a head that was attempted or is not PENDING.
  local function may_take(place)
    return place > 0 and place <= LARGEST and (not other or place == as_number(own) or place >= other_place
      or ahead_of.state == "PENDING" and count_attempts(ahead_of.attempts, ahead_of.earlier_attempts) == 0)
  end

  local live = state == "PENDING" or state == "CLAIMED"
  if not live and not (state == "DEAD" and old_head == id and settings.blocks) then
    if own then
      item.done[#item.done + 1] = "leaves its line: it is " .. state
    end
    return nil, old_head, other, other
  end
  local seq, place = as_number(fields.seq), as_number(own)
  if seq > given_out and place > 0 and place <= given_out then
    seq = place
  end
  local planned = may_take(seq) and seq or may_take(place) and place or given_out + 1
  if place ~= planned then
    item.done[#item.done + 1] = own and "its place in its line is corrected" or "joins its line"
  end
  if fields.seq or place ~= planned then
    change_field(item, "seq", format_integer(planned))
  end
  if planned > given_out then
    item.done[#item.done + 1] = "places in lines go on after " .. format_integer(planned)
  end
  local leads = not other or planned < other_place or planned == other_place and id < other
  return planned, old_head, leads and id or other, other
end
