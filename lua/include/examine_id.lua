--- @include "keys"
-- Reads all that the box stores about an id, for its repair: the fields of its event (and a copy, `before`, to which
-- changes are compared), its score in each sorted set, the only index that has it, the bytes of its body, the length
-- of its history. `done` collects what is to be done, in words.
local INDEXES = { "pending", "waiting", "suspect", "claimed", "published", "dead" }
local SETS = { "retries", "lost", unpack(INDEXES) }
local function examine_id(id)
  local item = { id = id, stored = false, fields = {}, before = {}, scores = {}, indexed = 0, done = {} }
  local found = redis.call("HGETALL", event_key .. id)
  for at = 1, #found, 2 do
    item.fields[found[at]], item.before[found[at]], item.stored = found[at + 1], found[at + 1], true
  end
  for _, set in ipairs(SETS) do
    item.scores[set] = redis.call("ZSCORE", key[set], id)
  end
  for _, index in ipairs(INDEXES) do
    if item.scores[index] then
      item.indexed, item.only_index = item.indexed + 1, index
    end
  end
  if item.indexed ~= 1 then
    item.only_index = nil
  end
  item.body = redis.call("STRLEN", body_key .. id)
  item.history = redis.call("LLEN", history_key .. id)
  return item
end
