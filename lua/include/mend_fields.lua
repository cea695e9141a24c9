--- @include "as_number"
--- @include "as_time"
--- @include "change_field"
--- @include "format_integer"
-- Corrects the fields of an event that can be checked by themselves. `known` has the fields in its body, which never
-- change; nil if the body could not be read. What should be a number or a time and is not one is removed: an event without
-- available_at is available from its created_at on.
local TIMES = { "available_at", "due_at", "claimed_at", "published_at", "died_at", "restored_at" }
local COUNTS = { "claim", "attempts", "excused", "expiries", "seq", "earlier_attempts" }
local LARGEST = 1e12 -- of a claim number or a place in a line: a larger one is damage
local function mend_fields(item, known, now)
  local fields = item.fields
  if known then
    for _, name in ipairs({ "event_type", "ordering_key", "unique_key", "unique_scope" }) do
      change_field(item, name, known[name] ~= "" and known[name] or nil)
    end
  elseif not fields.event_type then
    change_field(item, "event_type", "unknown")
  end
  for _, name in ipairs(COUNTS) do
    local count, text = as_number(fields[name]), fields[name]
    local numbered = name == "claim" or name == "seq"
    if text and (count == 0 and text ~= "0" or numbered and count > LARGEST) then
      change_field(item, name, nil, name .. " is removed: it is not a number, or out of range")
    end
  end
  for _, name in ipairs(TIMES) do
    local text = fields[name]
    if text and as_time(text) == 0 and (text ~= "0" or name == "available_at") then
      change_field(item, name, nil, name .. " is removed: it is not a time, or out of range")
    end
  end
  if as_time(fields.created_at) == 0 then
    local earliest = now
    for _, name in ipairs({ "available_at", "claimed_at", "published_at", "died_at" }) do
      earliest = math.min(earliest, fields[name] and as_number(fields[name]) or now)
    end
    change_field(item, "created_at", format_integer(earliest))
  end
  for _, name in ipairs({ "excused", "earlier_attempts" }) do
    if as_number(fields[name]) > as_number(fields.attempts) then
      change_field(item, name, format_integer(as_number(fields.attempts)))
    end
  end
end
