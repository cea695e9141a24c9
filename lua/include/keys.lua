-- Names of every key of the box whose meta key is KEYS[1]. The same names as redbox/keys.py; a test keeps them equal.
local prefix = string.sub(KEYS[1], 1, -6)
local key = {
  meta = KEYS[1],
  pending = prefix .. ":pending",
  waiting = prefix .. ":waiting",
  suspect = prefix .. ":suspect",
  claimed = prefix .. ":claimed",
  published = prefix .. ":published",
  dead = prefix .. ":dead",
  retries = prefix .. ":retries",
  blocked = prefix .. ":blocked",
  lost = prefix .. ":lost",
  counters = prefix .. ":counters",
  alone = prefix .. ":alone",
  log = prefix .. ":log",
  wake = prefix .. ":wake",
  relays = prefix .. ":relays",
}
local event_key = prefix .. ":e:"
local body_key = prefix .. ":b:"
local history_key = prefix .. ":h:"
local line_key = prefix .. ":line:"
local unique_key = prefix .. ":unique:"
local relay_key = prefix .. ":relay:"
