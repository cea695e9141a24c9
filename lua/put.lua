#!lua
-- put: nothing → PENDING.
--
-- Guarantee: an id that exists is never written again. Every check comes before the first write. Events are put in
-- the order given. In the mode "sure" nothing is refused, so that it can run inside EXEC after "check" under WATCH.
--
-- KEYS[1]   meta          hash; names the box
-- ARGV[1]   mode          each | until (stop at the first refusal) | all (all or nothing) | check (write nothing) | sure
-- ARGV[2]   id            then for each event the following
-- ARGV[3]   event_type
-- ARGV[4]   body          encoded immutable part
-- ARGV[5]   content       how many bytes of the body make two events the same; what follows is metadata
-- ARGV[6]   available     "" now, "+ms" from now, or "ms" absolute
-- ARGV[7]   ordering_key  "" for none
-- ARGV[8]   unique_key    "" for none
-- ARGV[9]   unique_scope  ALL_LIVE | UNTOUCHED
--
-- Returns   for each event {word, ...}: {"CREATED"}; {"EXISTS"} with the same content; {"DIFFERS", event_type,
--           ordering_key, unique_key, body} of the stored one (a large body is left out); {"CONFLICT", holder id}; {"FULL", max_pending};
--           {"SKIPPED"} (not reached, or refused with the rest)
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "now"
--- @include "open_box"
--- @include "touch"
--- @include "due"
--- @include "holder"
--- @include "in_chunks"
--- @include "enqueue"
--- @include "hint"
--- @include "whole"
--- @include "any_exist"
--- @include "count"

local mode = ARGV[1]
local FIELDS = 8
local TELLABLE = 65536
local settings, refusal = open_box()
if refusal then
  return refusal
end
local now = now_ms()
local sure, replies, created, existing, refused = mode == "sure", {}, {}, 0, false
local batch_ids, batch_unique, some_exist, room = {}, {}, any_exist(2, FIELDS), math.huge
if settings.max_pending > 0 and not sure then
  room = settings.max_pending - redis.call("ZCARD", key.pending) - redis.call("ZCARD", key.waiting)
    - redis.call("ZCARD", key.suspect)
end

local function compare(at, event_type, ordering, unique, body)
  local size = tonumber(ARGV[at + 3])
  if event_type == ARGV[at + 1] and ordering == ARGV[at + 5] and unique == ARGV[at + 6]
    and string.sub(body, 1, size) == string.sub(ARGV[at + 2], 1, size) then
    return { "EXISTS" }
  end
  return { "DIFFERS", event_type, ordering, unique, #body <= TELLABLE and body or "" }
end

local function compare_stored(id, at)
  local stored = redis.call("HMGET", event_key .. id, "event_type", "ordering_key", "unique_key")
  return compare(at, stored[1], stored[2] or "", stored[3] or "", redis.call("GET", body_key .. id) or "")
end

local function compare_in_batch(first, at)
  return compare(at, ARGV[first + 1], ARGV[first + 5], ARGV[first + 6], ARGV[first + 2])
end

-- A unique key is held by what is stored, or by an earlier event of this batch (which is untouched: in every scope).
local function judge(at)
  local id, ordering, unique = ARGV[at], ARGV[at + 5], ARGV[at + 6]
  if batch_ids[id] then
    return compare_in_batch(batch_ids[id], at)
  end
  if some_exist and redis.call("EXISTS", event_key .. id) == 1 then
    return compare_stored(id, at)
  end
  if not sure then
    local held = unique ~= "" and (batch_unique[unique] or holder(unique, ARGV[at + 7], now))
    if held then
      return { "CONFLICT", held }
    end
    if #created >= room then
      return { "FULL", tostring(settings.max_pending) }
    end
  end
  batch_ids[id] = at
  batch_unique[unique] = id
  created[#created + 1] = at
  if ordering ~= "" then
    redis.call("ZCARD", line_key .. ordering)
  end
  return { "CREATED" }
end

for at = 2, #ARGV, FIELDS do
  local reply = { "SKIPPED" }
  if not (refused and mode == "until") then
    reply = judge(at)
    existing = existing + (reply[1] == "EXISTS" and 1 or 0)
    refused = refused or (reply[1] ~= "CREATED" and reply[1] ~= "EXISTS")
  end
  replies[#replies + 1] = reply
end
touch()
if mode == "check" then
  return replies
end
if mode == "all" and refused then
  for _, reply in ipairs(replies) do
    if reply[1] == "CREATED" then
      reply[1] = "SKIPPED"
    end
  end
  return replies
end
if not settings.exists then
  redis.call("HSETNX", key.meta, "layout", LAYOUT)
end
local plain, created_at = {}, whole(now)
for _, at in ipairs(created) do
  local id, ordering, unique = ARGV[at], ARGV[at + 5], ARGV[at + 6]
  local available_at = whole(due(ARGV[at + 4], now))
  redis.call("SET", body_key .. id, ARGV[at + 2])
  redis.call("HSET", event_key .. id, "state", "PENDING", "event_type", ARGV[at + 1], "created_at", created_at,
    "available_at", available_at)
  if available_at ~= created_at then
    redis.call("HSET", event_key .. id, "due_at", available_at)
  end
  if ordering == "" and unique == "" then
    soonest = math.min(soonest, tonumber(available_at))
    plain[#plain + 1] = available_at
    plain[#plain + 1] = id
  else
    if ordering ~= "" then
      redis.call("HSET", event_key .. id, "ordering_key", ordering)
      redis.call("ZADD", line_key .. ordering, redis.call("HINCRBY", key.counters, "seq", 1), id)
    end
    if unique ~= "" then
      redis.call("HSET", event_key .. id, "unique_key", unique, "unique_scope", ARGV[at + 7])
    end
    enqueue(id, available_at, 0, 0, ordering ~= "" and ordering, unique ~= "" and unique)
  end
end
in_chunks("ZADD", key.pending, plain)
count("put", #created)
-- A put that finds its event there still makes a write, so that waiting for replicas or the disk confirms something.
count("repeated", existing)
hint()
return replies
