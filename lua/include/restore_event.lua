--- @include "as_number"
--- @include "format_integer"
-- Begins an event anew whose body is all that is left, and perhaps its id in an index, whose score is a time of it.
local function restore_event(item, now)
  local index = item.only_index
  local score = as_number(index and index ~= "claimed" and item.scores[index])
  item.done[#item.done + 1] = "restored from its body"
  item.fields.created_at = format_integer(score > 0 and math.min(score, now) or now)
  item.fields.restored_at = format_integer(now)
  if score > now then
    item.fields.available_at, item.fields.due_at = format_integer(score), format_integer(score)
  end
end
