-- Changes a field of an event that is repaired, and notes it; nil removes the field. It is written at the end.
local function change_field(item, name, value, why)
  if item.fields[name] ~= value then
    item.fields[name] = value
    item.done[#item.done + 1] = why or name .. (value and " is set" or " is removed")
  end
end
