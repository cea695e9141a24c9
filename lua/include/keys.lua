-- The names of the keys of the box whose meta key is KEYS[1]. `key.pending` and the like are made when first used. A
-- test compares them with redbox/keys.py.
local prefix = string.sub(KEYS[1], 1, -6)
local key = setmetatable({}, {
  __index = function(made, name)
    made[name] = prefix .. ":" .. name
    return made[name]
  end,
})
local event_key = prefix .. ":e:"
local body_key = prefix .. ":b:"
local history_key = prefix .. ":h:"
local line_key = prefix .. ":line:"
local unique_key = prefix .. ":unique:"
local relay_key = prefix .. ":relay:"
local wait_key = prefix .. ":wait:"
local stream_key = prefix .. ":stream:"
local lock_key = prefix .. ":lock:"
local rates_key = prefix .. ":rates:"
