--- @include "as_number"
--- @include "as_time"
--- @include "change_field"
--- @include "decide_state"
--- @include "format_integer"
-- Corrects the state of an event, and the fields that belong to a state; returns the state, and whether the event
-- becomes DEAD because its body is missing. An event that a relay holds is left to the relay: it has the body.
local function mend_state(item, now)
  local fields, scores, attempts = item.fields, item.scores, as_number(item.fields.attempts)
  local leased = scores.claimed and tonumber(scores.claimed) > now
  local state = decide_state(fields, item.only_index, leased)
  local held = state == "CLAIMED" and (leased or not scores.claimed)
  local dies = item.body == 0 and not PROOF[state] and not held
  if dies then
    state = "DEAD"
    change_field(item, "last_error", "body missing", "DEAD: its body is missing")
    change_field(item, "expiries", nil)
  end
  if state == "PENDING" and fields.state == "CLAIMED" and attempts > 0 then
    change_field(item, "excused", format_integer(math.min(attempts, as_number(fields.excused) + 1)))
  elseif state == "PENDING" and PROOF[fields.state or ""] and attempts > 0 then
    change_field(item, "excused", fields.attempts)
    change_field(item, "earlier_attempts", fields.attempts)
  end
  change_field(item, "state", state, "state " .. (fields.state or "missing") .. " becomes " .. state)
  for of, name in pairs(PROOF) do
    if state ~= of then
      change_field(item, name, nil)
    elseif not fields[name] then
      local score = not dies and as_time(scores[string.lower(of)]) or 0
      change_field(item, name, format_integer(score > 0 and score or now))
    end
  end
  if state == "PENDING" or dies then
    change_field(item, "claimed_at", nil)
    change_field(item, "claimed_by", nil)
  end
  if item.body > 0 or not PROOF[state] then
    change_field(item, "body_missing", nil)
  elseif not fields.body_missing then
    change_field(item, "body_missing", format_integer(now), "marked: its body is missing")
  end
  return state, dies
end
