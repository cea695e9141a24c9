--- @include "keys"
--- @include "format_integer"
--- @include "check_keys"
--- @include "check_line_keys"
--- @include "resume_key"
--- @include "note_paused_keys"
-- Ends the pauses of ordering keys whose time is over, 20 at a time. Its checks come before its first write. A key
-- whose line, or first event, has a foreign type stays paused for another minute: an error would stop the claims of
-- all other events.
local PAUSES_AT_ONCE, FOREIGN_LONGER = 20, 60000
local function end_key_pauses(now)
  local over = redis.call("ZRANGEBYSCORE", key.paused, "-inf", format_integer(now), "LIMIT", "0", PAUSES_AT_ONCE)
  local foreign = {}
  for _, ordering_key in ipairs(over) do
    local sound, failure = pcall(check_line_keys, ordering_key, 0)
    if not sound then
      if not string.find(type(failure) == "table" and failure.err or tostring(failure), "WRONGTYPE", 1, true) then
        error(failure)
      end
      foreign[ordering_key] = true
    end
  end
  redis.call("HLEN", key.pauses)
  check_keys()
  for _, ordering_key in ipairs(over) do
    if foreign[ordering_key] then
      redis.call("ZADD", key.paused, format_integer(now + FOREIGN_LONGER), ordering_key)
    else
      resume_key(ordering_key, now)
    end
  end
  note_paused_keys()
end
