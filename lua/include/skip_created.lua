-- The replies of a put that puts nothing, because one of its events was refused.
local function skip_created(replies)
  for i, reply in ipairs(replies) do
    if reply == "CREATED" or reply[1] == "REPLACED" then
      replies[i] = "SKIPPED"
    end
  end
  return replies
end
