-- The work of claiming an event, or of moving a `lost` id: 1 for a plain event, about eight microseconds. A
-- unique_key or an earlier attempt adds to it. A claim ends when it has done CLAIM_WORK.
local CLAIM_WORK = 1000
local function estimate_claim_work(unique, attempts, lost)
  return 1 + (lost and 4 or 0) + (unique and 3 or 0) + (attempts and 3 or 0)
end
