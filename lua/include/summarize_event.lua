--- @include "read_event"
-- An event without its body: {id, event_type, last_error, `entered`, claim number}, or nil. `entered` is its score.
local SUMMARY_FIELDS = { "state", "event_type", "last_error", "claim" }
local function summarize_event(id, entered)
  local event = read_event(id, SUMMARY_FIELDS)
  if not event.state then
    return nil
  end
  return { id, event.event_type or "", event.last_error or "", entered, event.claim or "0" }
end
