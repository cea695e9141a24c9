-- Compiles a glob: `*` is any run of characters, `?` is one UTF-8 character, everything else is itself. The pattern
-- is cut at its stars once. Each part is then searched for by the server's own code, leftmost match first, so
-- nothing is tried twice. Returns a function that tests whether a text matches, and one that returns the cost of a
-- match at worst, in reads of one field of an event.
local ONE = "[^\128-\191][\128-\191]*"
local function compile_glob(pattern)
  local parts, questions = {}, string.find(pattern, "?", 1, true) ~= nil
  for part in string.gmatch(pattern .. "*", "([^*]*)%*") do
    local literal = not string.find(part, "?", 1, true)
    parts[#parts + 1] = { literal, literal and part or
      string.gsub(string.gsub(string.gsub(part, "[^%w?\128-\255%z]", "%%%0"), "%z", "%%z"), "?", ONE) }
  end
  local first, last = parts[1], parts[#parts]

  local function starts(text)
    if first[1] then
      return string.sub(text, 1, #first[2]) == first[2] and #first[2] + 1
    end
    local _, stop = string.find(text, "^" .. first[2])
    return stop and stop + 1
  end

  local function ends(text, at)
    if last[1] then
      return #text - at + 1 >= #last[2] and (last[2] == "" or string.sub(text, -#last[2]) == last[2])
    end
    return string.find(text, last[2] .. "$", at) ~= nil
  end

  local function matches(text)
    local at = starts(text)
    if not at or #parts == 1 then
      return at == #text + 1
    end
    for middle = 2, #parts - 1 do
      local _, stop = string.find(text, parts[middle][2], at, parts[middle][1])
      if not stop then
        return false
      end
      at = stop + 1
    end
    return ends(text, at)
  end

  local function cost(text)
    return #text * #pattern / (questions and 150 or 50000)
  end
  return matches, cost
end
