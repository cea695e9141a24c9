--- @include "keys"
--- @include "as_number"
--- @include "as_time"
--- @include "count_attempts"
--- @include "decide_state"
--- @include "enqueue"
--- @include "examine_id"
--- @include "open_box"
-- Decides which index, and which scores, an event is to have, and notes what differs. `head` is the head that its line
-- will have; nil without an ordering_key. For a PENDING event it follows the same rule as `enqueue`, which writes.
local LEASE = 30000 -- ms, if nothing tells how long a lease was
local function plan_index(item, state, head, settings, now)
  local fields, scores, done = item.fields, item.scores, item.done
  local tried = count_attempts(fields.attempts, fields.earlier_attempts)
  local plan = { available_at = as_number(fields.available_at or fields.created_at), tried = tried,
    expiries = as_number(fields.expiries), index = string.lower(state) }
  local retries, unique = false, false
  if state == "PENDING" then
    local waits = head and (head ~= item.id or keys_paused and redis.call("ZSCORE", key.paused, fields.ordering_key))
    plan.index = waits and "waiting" or plan.expiries >= SUSPECT_FROM and "suspect" or "pending"
    plan.score, unique = plan.available_at, tried > 0 and plan.available_at or 0
    retries = tried > 0 and plan.available_at
  elseif state == "CLAIMED" then
    local ends = tonumber(scores.claimed or math.huge)
    plan.score, unique = ends <= LAST_MS and scores.claimed or now + math.max(settings.longest_lease, LEASE), math.huge
  else
    plan.score = as_number(fields[PROOF[state]])
  end
  for _, index in ipairs(INDEXES) do
    if scores[index] and index ~= plan.index then
      done[#done + 1] = "removed from " .. index
    end
  end
  if not scores[plan.index] then
    done[#done + 1] = "added to " .. plan.index
  elseif tonumber(scores[plan.index]) ~= tonumber(plan.score) then
    done[#done + 1] = "its score in " .. plan.index .. " is corrected"
  end
  if (scores.retries and tonumber(scores.retries)) ~= retries then
    done[#done + 1] = "retries is corrected"
  end
  if scores.lost then
    done[#done + 1] = "removed from lost"
  end
  if fields.unique_key then
    local held = redis.call("ZSCORE", unique_key .. fields.unique_key, item.id)
    if (held and tonumber(held)) ~= unique then
      done[#done + 1] = unique and "holds its unique_key" or "no longer holds its unique_key"
    end
  end
  return plan
end
