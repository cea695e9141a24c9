-- When the attempt of an event that is in the history began: name and value of a field of its hash, for HSET. The value
-- is the number of the entry and the time in ms. There are eight fields, as there are entries; attempts use them in turn.
-- Nothing for a claim without an attempt, because none was left. `event` has claimed_at and exhausted.
local BEGAN = { [0] = "began0", "began1", "began2", "began3", "began4", "began5", "began6", "began7" }
local function note_start(event, number, attempts)
  if event.claimed_at and not event.exhausted then
    return BEGAN[attempts % 8], (number or "0") .. ":" .. event.claimed_at
  end
end
