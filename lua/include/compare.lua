-- Whether a stored body is that of the same event as a given one, of which the first `size` bytes count. Of one that
-- differs the stored body is told, unless it is large.
local TELLABLE = 65536
local function compare(stored, given, size)
  if string.sub(stored, 1, size) == string.sub(given, 1, size) then
    return "EXISTS"
  end
  return { "DIFFERS", #stored <= TELLABLE and stored or "" }
end
