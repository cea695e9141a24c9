#!lua flags=allow-oom
-- repair_key: removes a member from a line or a unique key to which it does not belong, corrects whether the line is
-- blocked, and corrects in meta whether ordering keys are paused.
--
-- Guarantee: only the line or the unique key changes, meta, and the index of the event that becomes the head. A member whose
-- event can still be restored from its body stays; `repair` restores it. Repeating the call changes nothing.
--
-- KEYS[1]   meta     hash; names the box
-- ARGV[1]   dry      1 to change nothing
-- ARGV[2]   kind     line | unique
-- ARGV[3]   name     the ordering_key or unique_key
-- ARGV[4]   id       the member; not given to correct only whether the line is blocked
--
-- Returns   what was done, or would be done, in words; nothing if nothing had to be done
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "now_ms"
--- @include "open_box"
--- @include "check_keys"
--- @include "read_event"
--- @include "requeue"
--- @include "send_hint"
--- @include "read_paused_keys"
--- @include "note_paused_keys"

local dry, kind, name, id = ARGV[1] == "1", ARGV[2], ARGV[3], ARGV[4]
local settings, refusal = open_box()
if refusal then
  return refusal
end
local now, done = now_ms(), {}
local noted, unnoted = read_paused_keys()
local members = (kind == "line" and line_key or unique_key) .. name
local named = kind == "line" and "ordering_key" or "unique_key"
local FIELDS = { "state", named }
local LIVE = { PENDING = true, CLAIMED = true }
local head, following = unpack(redis.call("ZRANGE", members, 0, 1))
local removes = false
if id and redis.call("ZSCORE", members, id) then
  local event = read_event(id, FIELDS)
  if redis.call("HLEN", event_key .. id) == 0 then
    removes = redis.call("STRLEN", body_key .. id) == 0
  elseif event[named] ~= name then
    removes = true
  elseif event.state == "DEAD" or event.state == "PUBLISHED" then
    removes = not (kind == "line" and event.state == "DEAD" and head == id)
  end
  if removes then
    done[1] = "removed from " .. (kind == "line" and "line " or "unique_key ") .. name
    if head == id then
      head = following
    end
  end
end
-- A line is blocked while its head is DEAD; under the dead-head policy "skip" a dead head leaves it instead.
local blocked, skips, block = kind == "line" and redis.call("ZSCORE", key.blocked, name), false, nil
if kind == "line" then
  local state = head and read_event(head, FIELDS).state
  if state == "DEAD" and not blocked then
    skips, block = not settings.blocks, settings.blocks
    done[#done + 1] = skips and "a dead head leaves line " .. name or "line " .. name .. " is blocked"
  elseif state ~= "DEAD" and blocked then
    block = false
    done[#done + 1] = "line " .. name .. " is no longer blocked"
  end
  if head then
    redis.call("HLEN", event_key .. head)
  end
  if following then
    redis.call("HLEN", event_key .. following)
  end
end
if unnoted then
  done[#done + 1] = "meta notes which ordering keys are paused"
end
check_keys()
if dry or not done[1] then
  return done
end

keys_paused = noted
note_paused_keys()
if removes then
  redis.call("ZREM", members, id)
end
if skips then
  redis.call("ZREM", members, head)
end
if block then
  redis.call("ZADD", key.blocked, now, name)
elseif block == false then
  redis.call("ZREM", key.blocked, name)
end
local new_head = kind == "line" and redis.call("ZRANGE", members, 0, 0)[1]
if new_head then
  requeue(new_head, name, now)
end
send_hint()
return done
