-- Whether a text matches a glob: `*` is any run of characters, `?` is one character of UTF-8, all else is itself. Two
-- pointers and no recursion, so that no pattern can hold up the server.
local function glob(pattern, text)
  local function after(at)
    repeat
      at = at + 1
      local byte = string.byte(text, at)
    until not byte or byte < 128 or byte > 191
    return at
  end
  local p, t, star, resume = 1, 1, nil, nil
  while t <= #text do
    local wanted = string.sub(pattern, p, p)
    if wanted == "*" then
      star, resume, p = p, t, p + 1
    elseif wanted == "?" then
      p, t = p + 1, after(t)
    elseif wanted ~= "" and wanted == string.sub(text, t, t) then
      p, t = p + 1, t + 1
    elseif star then
      resume = after(resume)
      p, t = star + 1, resume
    else
      return false
    end
  end
  return string.find(pattern, "^%**$", p) ~= nil
end
