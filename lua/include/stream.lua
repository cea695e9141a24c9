--- @include "keys"
-- The key of a batch of a stream, or nothing without a name. The second result is the error to return when another
-- process has taken the stream over.
local function stream(name, owner, batch)
  if name == "" then
    return nil
  end
  local holder = redis.call("HGET", stream_key .. name, "owner")
  if holder ~= owner then
    return nil, redis.error_reply("STREAMTAKEN another process has taken over the stream " .. name)
  end
  return stream_key .. name .. ":" .. batch
end
