#!lua
-- put: nothing → PENDING.
--
-- Guarantee: an id that exists is never written again, unless an interrupted put left it unfinished: then it is
-- completed. Every check comes before the first write. Events are put in the order given. In the mode "sure" nothing is
-- refused, so that it can run inside EXEC after "check" under WATCH.
--
-- KEYS[1]   meta        hash; names the box
-- ARGV[1]   mode        each | until (stop at the first refusal) | all (all or nothing) | check (write nothing) | sure
-- ARGV[2]   id          then for each event the following
-- ARGV[3]   event_type
-- ARGV[4]   body        encoded immutable part
-- ARGV[5]   content     how many bytes of the body make two events the same; what follows is metadata
-- ARGV[6]   options     "" for none, or four separated by tabs: when it is available ("" now, "+ms" from now, or "ms"
--                       absolute), ordering_key, unique_key ("" for none), unique_scope (ALL_LIVE | UNTOUCHED); and
--                       only for an event that is restored from an archive a fifth: its created_at in ms
--
-- Returns   for each event "CREATED"; "EXISTS", with the same content; {"DIFFERS", body} of the stored one (a large body
--           is left out); {"CONFLICT", holder id}; {"FULL", max_pending}; "SKIPPED" (not reached, or refused with the rest)
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "now"
--- @include "open_box"
--- @include "touch"
--- @include "due"
--- @include "holder"
--- @include "in_chunks"
--- @include "look_up"
--- @include "compare"
--- @include "read_options"
--- @include "enqueue"
--- @include "write_options"
--- @include "hint"
--- @include "whole"
--- @include "count"

local mode = ARGV[1]
local FIELDS = 5
local settings, refusal = open_box()
if refusal then
  return refusal
end
local now = now_ms()
local sure, replies, existing, refused = mode == "sure", {}, 0, false
local created, options, unfinished_at, batch_ids, batch_unique, room = {}, {}, {}, {}, {}, math.huge
if settings.max_pending > 0 and not sure then
  room = settings.max_pending - redis.call("ZCARD", key.pending) - redis.call("ZCARD", key.waiting)
    - redis.call("ZCARD", key.suspect)
end
local event_keys, some_exist = look_up(2, FIELDS)

-- A unique key is held by what is stored, or by an earlier event of this batch (which is untouched: in every scope).
local function judge(at)
  local id, own = ARGV[at], ARGV[at + 4] ~= "" and read_options(ARGV[at + 4])
  if batch_ids[id] then
    return compare(at, ARGV[batch_ids[id] + 2])
  end
  if some_exist and redis.call("EXISTS", event_keys[at]) == 1 then
    local reply, stored = compare(at, false), redis.call("EXISTS", body_key .. id) == 1
-- Included here and not above: defining a function takes time, also when it is not called.
--- @include "unfinished"
    unfinished_at[at] = (reply == "EXISTS" or not stored) and unfinished(id, stored, own)
    if not unfinished_at[at] then
      return reply
    end
  end
  if not sure then
    local held = own and own.unique and (batch_unique[own.unique] or holder(own.unique, own.scope, now))
    if held and held ~= id then
      return { "CONFLICT", held }
    end
    if #created >= room and not unfinished_at[at] then
      return { "FULL", tostring(settings.max_pending) }
    end
  end
  batch_ids[id] = at
  created[#created + 1] = at
  if own then
    options[at] = own
    if own.unique then
      batch_unique[own.unique] = id
    end
    if own.ordering then
      redis.call("ZCARD", line_key .. own.ordering)
    end
    if own.created then
      redis.call("LLEN", history_key .. id)
    end
  end
  return "CREATED"
end

for at = 2, #ARGV, FIELDS do
  local reply = "SKIPPED"
  if not (refused and mode == "until") then
    reply = judge(at)
    if reply == "EXISTS" then
      existing = existing + 1
    elseif reply ~= "CREATED" then
      refused = true
    end
  end
  replies[#replies + 1] = reply
end
touch(settings.exists and { "counters", "pending", "waiting", "wake" })
if mode == "check" then
  return replies
end
if mode == "all" and refused then
  for position, reply in ipairs(replies) do
    if reply == "CREATED" then
      replies[position] = "SKIPPED"
    end
  end
  return replies
end
if not settings.exists then
  redis.call("HSETNX", key.meta, "layout", LAYOUT)
end
local bodies, plain, created_at = {}, {}, whole(now)
for position, at in ipairs(created) do
  local id, event, own = ARGV[at], event_keys[at], options[at]
  local available_at = own and whole(due(own.available, now)) or created_at
  bodies[2 * position - 1], bodies[2 * position] = body_key .. id, ARGV[at + 2]
  if unfinished_at[at] then
--- @include "mend"
    mend(id, unfinished_at[at], own, available_at, created_at)
  else
    redis.call("HSET", event, "state", "PENDING", "event_type", ARGV[at + 1], "created_at", created_at)
    if own then
      write_options(id, event, own, available_at, created_at)
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
in_chunks("ZADD", key.pending, plain)
count("put", #created)
-- A put that finds its event there still makes a write, so that waiting for replicas or the disk confirms something.
count("repeated", existing)
hint()
return replies
