--- @include "keys"
--- @include "format_integer"
--- @include "check_keys"
--- @include "check_line_keys"
--- @include "resume_key"
--- @include "note_paused_keys"
-- Ends the pauses of ordering keys whose time is over, 20 at a time. Its checks come before its first write.
local PAUSES_AT_ONCE = 20
local function end_key_pauses(now)
  local over = redis.call("ZRANGEBYSCORE", key.paused, "-inf", format_integer(now), "LIMIT", "0", PAUSES_AT_ONCE)
  for _, ordering_key in ipairs(over) do
    check_line_keys(ordering_key, 0)
  end
  redis.call("HLEN", key.pauses)
  check_keys()
  for _, ordering_key in ipairs(over) do
    resume_key(ordering_key, now)
  end
  note_paused_keys()
  return over
end
