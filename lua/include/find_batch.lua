--- @include "keys"
-- The key of a stream's batch; nil without a number. The second result is the error to return if another process has
-- taken the stream over. Reads the key, which is about to be written: a foreign type, or a cluster slot that is
-- moving away, then fails here, before the first write.
local function find_batch(name, owner, batch)
  local holder = redis.call("HGET", stream_key .. name, "owner")
  if holder ~= owner then
    return nil, redis.error_reply("STREAMTAKEN another process has taken over the stream " .. name)
  end
  if not batch then
    return nil
  end
  local members = stream_key .. name .. ":" .. batch
  redis.call("ZCARD", members)
  return members
end
