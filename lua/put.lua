#!lua
-- put: nothing → PENDING. Where the caller asks for it, the event replaces the one that holds its unique key.
--
-- Guarantee: an existing id is never written again, except to complete an event that an interrupted put left
-- unfinished, or that lost its body. Only an event that was never claimed is replaced: it is removed completely. All checks come before the first write. Events are put in the order given. The
-- mode "sure" refuses nothing: it runs inside EXEC, after "check" under WATCH.
--
-- KEYS[1]   meta        hash; names the box
-- ARGV[1]   mode        each | until (stop at the first refusal) | all (all or nothing) | check (write nothing) | sure
-- ARGV[2]   id          then for each event the following
-- ARGV[3]   event_type
-- ARGV[4]   body        the immutable part, encoded
-- ARGV[5]   content     bytes of the body that make two events the same; the rest is metadata
-- ARGV[6]   options     "" for none, or four fields separated by tabs: available_at ("" now, "+ms" from now, or "ms"
--                       absolute), ordering_key, unique_key ("" for none), unique_scope (ALL_LIVE | UNTOUCHED); an
--                       event restored from an archive has a fifth: its created_at in ms; a sixth that is not "":
--                       replace the event that holds the unique_key
--
-- Returns   for each event "CREATED"; {"REPLACED", id of the event it replaced}; "EXISTS" (same content); {"DIFFERS", stored body, "" if large, or a field};
--           {"CONFLICT", id of the holder}; {"FULL", max_pending}; "SKIPPED" (not reached, or refused with the others)
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "now_ms"
--- @include "open_box"
--- @include "check_keys"
--- @include "parse_time"
--- @include "find_unique_holder"
--- @include "call_in_chunks"
--- @include "look_up_events"
--- @include "compare_content"
--- @include "read_options"
--- @include "enqueue"
--- @include "write_options"
--- @include "send_hint"
--- @include "format_integer"
--- @include "increase_total"
--- @include "count_attempts"

local mode = ARGV[1]
local settings, refusal = open_box()
if refusal then
  return refusal
end
local now, restored = now_ms(), {}
local sure, replies, existing, refused = mode == "sure", {}, 0, false
local created, options, unfinished_at, created_ids, created_unique, room = {}, {}, {}, {}, {}, math.huge
if settings.max_pending > 0 and not sure then
  room = settings.max_pending - redis.call("ZCARD", key.pending) - redis.call("ZCARD", key.waiting)
    - redis.call("ZCARD", key.suspect)
end
local hashes, some_exist = look_up_events(2, 5)
local replacing = false -- the events that this call replaces: see judge_replacement

-- A unique key is held by a stored event, or by an earlier event of this call (untouched, so in every scope).
local function judge(at)
  local id, own_options = ARGV[at], ARGV[at + 4]
  local own = own_options ~= "" and read_options(own_options)
  if created_ids[id] then
    return compare_content(at, ARGV[created_ids[id] + 2])
  end
  if some_exist and not (replacing and replacing.gone[id]) and redis.call("EXISTS", hashes[at]) == 1 then
-- Included here and not above: defining a function takes time, also when it is not called.
--- @include "judge_existing"
    local reply
    reply, unfinished_at[at], created_ids[id] = judge_existing(at, own, restored)
    if not unfinished_at[at] then
      return reply
    end
  end
  local replaced
  if own and own.replace then
--- @include "judge_replacement"
    local holder
    replacing = replacing or { gone = {}, removed = {}, unwritten = {}, count = 0 }
    replaced, holder = judge_replacement(own, id, created_unique[own.unique], created_ids, unfinished_at, replacing, now)
    if holder and not sure then
      return { "CONFLICT", holder }
    end
    room = replaced and room + 1 or room
  elseif not sure then
    local held = own and own.unique and (created_unique[own.unique] or find_unique_holder(own.unique, own.scope, now))
    if held and held ~= id then
      return { "CONFLICT", held }
    end
  end
  if not replaced and #created >= room and not unfinished_at[at] then
    return { "FULL", tostring(settings.max_pending) }
  end
  created_ids[id] = at
  created[#created + 1] = at
  if own then
    options[at] = own
    if own.unique then
      created_unique[own.unique] = id
    end
    if own.ordering then
      redis.call("ZCARD", line_key .. own.ordering)
    end
    if own.created then
      redis.call("LLEN", history_key .. id)
    end
  end
  return replaced and { "REPLACED", replaced } or "CREATED"
end

for at = 2, #ARGV, 5 do
  local reply = "SKIPPED"
  if not (refused and mode == "until") then
    reply = judge(at)
    if reply == "EXISTS" then
      existing = existing + 1
    elseif reply ~= "CREATED" and reply[1] ~= "REPLACED" then
      refused = true
    end
  end
  replies[#replies + 1] = reply
end
check_keys(settings.exists and not replacing and { "counters", "pending", "waiting", "wake" })
if mode == "check" then
  return replies
end
if mode == "all" and refused then
--- @include "skip_created"
  return skip_created(replies)
end
if not settings.exists then
  redis.call("HSETNX", key.meta, "layout", LAYOUT)
end
local bodies, plain, created_at, put = {}, {}, format_integer(now), #created
if replacing then
--- @include "remove_replaced"
  created = remove_replaced(replacing, created, now)
end
for i, at in ipairs(created) do
  local id, event_type, body, hash, own = ARGV[at], ARGV[at + 1], ARGV[at + 2], hashes[at], options[at]
  local available_at = own and format_integer(parse_time(own.available, now)) or created_at
  bodies[2 * i - 1], bodies[2 * i] = body_key .. id, body
  if unfinished_at[at] then
--- @include "complete_put"
    local left = unfinished_at[at]
    complete_put(id, count_attempts(left.attempts, left.earlier_attempts), left.expiries, own, available_at, created_at)
  else
    redis.call("HSET", hash, "state", "PENDING", "event_type", event_type, "created_at", created_at)
    if own then
      write_options(id, hash, own, available_at, created_at)
    end
    if own and (own.ordering or own.unique) then
      enqueue(id, available_at, 0, 0, own.ordering, own.unique)
    else
      soonest = math.min(soonest, tonumber(available_at))
      plain[#plain + 1], plain[#plain + 2] = available_at, id
    end
  end
end
if bodies[1] then
  redis.call("MSET", unpack(bodies))
end
if restored[1] then
  redis.call("MSET", unpack(restored))
end
call_in_chunks("ZADD", key.pending, plain)
increase_total("put", put)
increase_total("replaced", replacing and replacing.count or 0)
-- A put that only finds existing events still writes, so that a wait for replicas or the disk confirms something.
increase_total("repeated", existing)
send_hint()
return replies
