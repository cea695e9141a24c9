-- The options of a put by name: available, scope, and ordering, unique, created and replace, which are false if not
-- given.
local function read_options(text)
  local available, ordering, unique, scope, created, replace = string.match(text,
    "^(.-)\t(.-)\t(.-)\t([^\t]*)\t?([^\t]*)\t?(.*)$")
  return {
    available = available,
    ordering = ordering ~= "" and ordering,
    unique = unique ~= "" and unique,
    scope = scope,
    created = created ~= "" and created,
    replace = replace ~= "",
  }
end
