--- @include "as_number"
-- When an event is available, in ms: its available_at, else its created_at, else `now`. Damaged values are skipped.
local function read_available_at(available_at, created_at, now)
  for _, text in ipairs({ available_at or "", created_at or "" }) do
    if as_number(text) > 0 then
      return as_number(text)
    end
  end
  return now
end
