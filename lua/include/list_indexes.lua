-- The indexes that hold the events of a state; none for an unknown state. A test compares them with redbox/keys.py.
local INDEXES_OF = {
  PENDING = { "pending", "waiting", "suspect" },
  CLAIMED = { "claimed" },
  PUBLISHED = { "published" },
  DEAD = { "dead" },
}
local function list_indexes(state)
  return INDEXES_OF[state] or {}
end
