-- The options of a put by name: when it is available, ordering_key, unique_key and created_at (false for none), and
-- unique_scope.
local function read_options(text)
  local available, ordering, unique, scope, created = string.match(text, "^(.-)\t(.-)\t(.-)\t([^\t]*)\t?(.*)$")
  return {
    available = available,
    ordering = ordering ~= "" and ordering,
    unique = unique ~= "" and unique,
    scope = scope,
    created = created ~= "" and created,
  }
end
