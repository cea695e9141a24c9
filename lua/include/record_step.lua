--- @include "keys"
--- @include "record_action"
-- Writes one step of an operator's action into the box's log. Steps with the same token are one entry: it is written
-- anew with the sum of their counts and the ids of the first. If more than NEAR other entries came between two steps,
-- there is another entry with the token, which readers of the log add up. Not for scripts of relays: it needs XDEL.
local NEAR = 20
local function record_step(action, who, why, ids, token, detail)
  if who == "" or #ids == 0 or token == "" then
    return record_action(action, who, why, ids, detail)
  end
  for _, entry in ipairs(redis.call("XREVRANGE", key.log, "+", "-", "COUNT", NEAR)) do
    local names, fields = entry[2], {}
    for at = 1, #names, 2 do
      fields[names[at]] = names[at + 1]
    end
    if fields.token == token and tonumber(fields.count) then
      redis.call("XDEL", key.log, entry[1])
      local first = {}
      for id in string.gmatch(fields.ids or "", "%S+") do
        first[#first + 1] = id
      end
      for _, id in ipairs(ids) do
        first[#first + 1] = id
      end
      return record_action(action, who, why, first, detail, tonumber(fields.count) + #ids, token)
    end
  end
  record_action(action, who, why, ids, detail, nil, token)
end
