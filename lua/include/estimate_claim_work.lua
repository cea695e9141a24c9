-- How much work it is to claim an event, or to set aside an id that is `lost`: a plain event is 1, about eight
-- microseconds; one with a unique_key, or that was tried before, takes more. A claim ends when it has done CLAIM_WORK.
local CLAIM_WORK = 1000
local function estimate_claim_work(unique, attempts, lost)
  return 1 + (lost and 4 or 0) + (unique and 3 or 0) + (attempts and 3 or 0)
end
