--- @include "keys"
--- @include "compare_content"
--- @include "read_unfinished"
-- Judges a put at this offset in ARGV, with the options `own`, of an id that exists. Returns the reply; what
-- read_unfinished returns, if the put is to complete the event; and the offset, if the put is to store its body again:
-- then the key and the body are added to `restored`.
--
-- A lost body cannot be compared. If the fields of the event fit, this is its body: the put stores it again, and the
-- event keeps its state. To refuse it would claim a difference that nobody can know.
local function judge_existing(at, own, restored)
  local stored = redis.call("EXISTS", body_key .. ARGV[at]) == 1
  local reply = stored and compare_content(at, false) or "EXISTS"
  if reply ~= "EXISTS" then
    return reply
  end
  local left, differs = read_unfinished(at, stored, own)
  if differs and not stored then
    return { "DIFFERS", differs }
  end
  if stored or left then
    return reply, left
  end
  restored[#restored + 1], restored[#restored + 2] = body_key .. ARGV[at], ARGV[at + 2]
  return reply, nil, at
end
