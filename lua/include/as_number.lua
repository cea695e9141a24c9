-- A count that is stored in a hash: a whole number of at most 15 digits. Without a value, or with any other text, it
-- is 0: an error here would stop the script between its writes.
local function as_number(text)
  return text and #text <= 15 and not string.find(text, "%D") and tonumber(text) or 0
end
