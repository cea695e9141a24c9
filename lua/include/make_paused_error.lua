--- @include "keys"
--- @include "find_pause_end"
-- The error of a call that would claim from a paused box: "PAUSED", and who, why, until and now as JSON, which has no
-- line breaks. nil if the pause is over. `paused` is the field of meta.
local LONGEST_WHY = 200
local function make_paused_error(paused, now)
  local ends, since = find_pause_end(paused)
  if ends > 0 and ends <= now then
    return nil
  end
  local who, why = "", ""
  if since then
    who, why = unpack(redis.call("HMGET", key.meta, "pause_who", "pause_why"))
  end
  if why and #why > LONGEST_WHY then -- without half of its last character
    why = string.gsub(string.sub(why, 1, LONGEST_WHY), "[\192-\255][\128-\191]*$", "") .. "…"
  end
  return redis.error_reply("PAUSED " .. cjson.encode({
    who = who or "",
    why = why or "",
    ["until"] = ends > 0 and string.format("%d", ends) or nil,
    now = string.format("%d", now),
  }))
end
