--- @include "keys"
--- @include "check_event_keys"
-- Judges a put of an id with the options `own` that may replace the holder of its unique key. Returns the id of the event
-- that it replaces, if any; else the id of one that holds the key and cannot be replaced, if any.
--
-- An event can be replaced if it was never claimed (PENDING, without a claim number, and not restored from an archive),
-- or if this call creates it: `made` is the id of such an event with the key. Only one event is replaced. What is to be
-- done is noted in `replacing`: stored events are `gone` and to be `removed`; an event of this call is `unwritten`, by
-- its offset in ARGV, and no longer in `created_ids`. One that this call completes, or stores the body of, is kept.
local function judge_replacement(own, id, made, created_ids, unfinished_at, replacing, now)
  local found, ordering
  local upto = own.scope == "UNTOUCHED" and now or "+inf"
  -- Four are enough: the event itself if a put left it unfinished, one that is gone already, and two others.
  for _, held in ipairs(redis.call("ZRANGEBYSCORE", unique_key .. own.unique, "-inf", upto, "LIMIT", "0", "4")) do
    if held ~= id and not replacing.gone[held] then
      local state, claim, restored, line = unpack(redis.call("HMGET", event_key .. held, "state", "claim",
        "restored_at", "ordering_key"))
      if found or made or created_ids[held] or state ~= "PENDING" or claim or restored then
        return nil, held
      end
      found, ordering = held, line
    end
  end
  if made and made ~= id then
    local offset = created_ids[made]
    if unfinished_at[offset] then
      return nil, made
    end
    replacing.unwritten[offset], created_ids[made] = true, nil
  elseif found then
    check_event_keys(found, ordering, own.unique)
    replacing.gone[found] = true
    replacing.removed[#replacing.removed + 1] = { id = found, unique = own.unique, ordering = ordering }
  else
    return nil
  end
  replacing.count = replacing.count + 1
  return made or found
end
