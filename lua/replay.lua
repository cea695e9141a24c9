#!lua
-- replay: PUBLISHED → PENDING and DEAD → PENDING.
--
-- Guarantee: an event is refused, and the other event named, if that one holds its unique_key or superseded it,
-- unless forced. An event without a body cannot be delivered, and is refused. An ordered event joins the tail of its
-- line. Under the dead-head policy "block" a dead event returns to its own place instead, unless the head of the line
-- is a later event that was claimed already. The history is kept. If the caller gives the claim number that it saw,
-- an event that was claimed since then is left alone: so a replay can be repeated.
--
-- KEYS[1]   meta       hash; names the box
-- ARGV[1]   reset      1 to excuse all attempts so far and clear last_error, 0 to keep them
-- ARGV[2]   available  "" now, "+ms" from now, or "ms" absolute
-- ARGV[3]   force      1 to replay although its unique_key is held, or it was superseded
-- ARGV[4]   dry        1 to change nothing
-- ARGV[5]   who        the operator; "" writes no log
-- ARGV[6]   why        the operator's reason
-- ARGV[7]   token      the same in all steps of one replay, which are one entry of the log; "" for a replay of one step
-- ARGV[8]   id         then for each event the following
-- ARGV[9]   number     the claim number that it must still have, 0 for none; "" for any
--
-- Returns   for each event {"OK"}, {"UNKNOWN"}, {"NOTTERMINAL", state}, {"CHANGED", its claim number},
--           {"BODYMISSING"}, {"SUPERSEDED", id of the event that superseded it} or {"CONFLICT", id of the holder}
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "now_ms"
--- @include "open_box"
--- @include "check_keys"
--- @include "check_event_keys"
--- @include "parse_time"
--- @include "find_unique_holder"
--- @include "count_attempts"
--- @include "join_line"
--- @include "enqueue"
--- @include "add_history"
--- @include "note_start"
--- @include "record_step"
--- @include "increase_total"
--- @include "send_hint"
--- @include "read_event"
--- @include "as_number"

local FIELDS = { "state", "ordering_key", "unique_key", "unique_scope", "attempts", "published_at", "claimed_by",
  "claim", "superseded_by", "seq", "earlier_attempts", "claimed_at", "exhausted" }
local reset, available, force = ARGV[1] == "1", ARGV[2], ARGV[3] == "1"
local dry, who, why, token = ARGV[4] == "1", ARGV[5], ARGV[6], ARGV[7]
local settings, refusal = open_box()
if refusal then
  return refusal
end
local now = now_ms()
local available_at = parse_time(available, now)
local replies, blocking, replayed, ids, replayed_unique, seen = {}, {}, {}, {}, {}, {}

local function judge(id, event, number)
  if not event.state then
    return { "UNKNOWN" }
  end
  if seen[id] then
    return { "NOTTERMINAL", "PENDING" }
  end
  if event.state ~= "PUBLISHED" and event.state ~= "DEAD" then
    return { "NOTTERMINAL", event.state }
  end
  if number ~= "" and tonumber(number) ~= as_number(event.claim) then
    return { "CHANGED", event.claim or "0" }
  end
  if redis.call("STRLEN", body_key .. id) == 0 then
    return { "BODYMISSING" }
  end
  if event.superseded_by and not force then
    return { "SUPERSEDED", event.superseded_by }
  end
  if event.unique_key and not force then
    local earlier = replayed_unique[event.unique_key]
    local in_scope = earlier and (event.unique_scope ~= "UNTOUCHED" or earlier.score <= now)
    local held = in_scope and earlier.id or find_unique_holder(event.unique_key, event.unique_scope, now)
    if held then
      return { "CONFLICT", held }
    end
  end
  return { "OK" }
end

for at = 8, #ARGV, 2 do
  local id, number = ARGV[at], ARGV[at + 1]
  local event = read_event(id, FIELDS)
  local reply = judge(id, event, number)
  if reply[1] == "OK" then
    seen[id] = true
    check_event_keys(id, event.ordering_key, event.unique_key)
    if event.unique_key then
      local untouched = reset or count_attempts(event.attempts, event.earlier_attempts) == 0
      replayed_unique[event.unique_key] = { id = id, score = untouched and 0 or available_at }
    end
    local place, head = false, false
    if event.ordering_key then
      place = redis.call("ZSCORE", line_key .. event.ordering_key, id)
      head = redis.call("ZRANGE", line_key .. event.ordering_key, 0, 0)[1]
    end
    if head then
      redis.call("HLEN", event_key .. head)
    end
    -- Dead heads come first: events that are replayed with them may belong before them.
    local list = place and blocking or replayed
    event.id = id
    list[#list + 1] = event
    ids[#ids + 1] = id
  end
  replies[#replies + 1] = reply
end
if dry then
  return replies
end
check_keys()

for _, event in ipairs(replayed) do
  blocking[#blocking + 1] = event
end
for _, event in ipairs(blocking) do
  local id, hash, ordering = event.id, event_key .. event.id, event.ordering_key
  if event.published_at then
    add_history(id, event.published_at, event.claim, "published", event.claimed_by, "")
    redis.call("HSET", hash, "state", "PENDING", note_start(event, event.claim, as_number(event.attempts)))
  end
  add_history(id, now, event.claim, "replayed", who, why)
  redis.call("HSET", hash, "state", "PENDING", "available_at", available_at, "due_at", available_at)
  redis.call("HDEL", hash, "published_at", "died_at", "claimed_at", "claimed_by", "expiries", "alone", "exhausted",
    "superseded_by", "archived")
  if reset then
    redis.call("HDEL", hash, "last_error")
    if event.attempts then
      redis.call("HSET", hash, "excused", event.attempts, "earlier_attempts", event.attempts)
    end
  end
  redis.call("ZREM", event.state == "DEAD" and key.dead or key.published, id)
  if ordering then
    join_line(id, ordering, settings.blocks and event.state == "DEAD" and event.seq, now)
  end
  local tried = reset and 0 or count_attempts(event.attempts, event.earlier_attempts)
  enqueue(id, available_at, tried, 0, ordering, event.unique_key)
end
record_step("replay", who, why, ids, token)
increase_total("replayed", #ids)
send_hint()
return replies
