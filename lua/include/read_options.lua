-- The options of a put by name: when it is available, and ordering_key, unique_key (false for none) and unique_scope.
local function read_options(text)
  local available, ordering, unique, scope = string.match(text, "^(.-)\t(.-)\t(.-)\t(.*)$")
  return { available = available, ordering = ordering ~= "" and ordering, unique = unique ~= "" and unique, scope = scope }
end
