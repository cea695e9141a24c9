#!lua flags=no-writes
-- page: reads a page of one index in order, narrowed by filters.
--
-- Guarantee: changes nothing; bounded in work and in bytes. The cursor is the last (score, id) that was looked at,
-- so that events that come and go do not shift the pages.
--
-- KEYS[1]   meta          hash; names the box
-- ARGV[1]   index         pending | waiting | suspect | claimed | published | dead
-- ARGV[2]   limit         maximum to return
-- ARGV[3]   look          maximum to read; one that takes more work, to match or to return, counts as several
-- ARGV[4]   bytes         maximum, of events
-- ARGV[5]   score         cursor; "" to begin
-- ARGV[6]   id            cursor
-- ARGV[7]   since         lowest score, ms; "" for any
-- ARGV[8]   until         highest score, ms; "" for any
-- ARGV[9]   event_type    glob; "" for any
-- ARGV[10]  key           ordering_key or unique_key; "" for any
-- ARGV[11]  error         text in last_error, in lower case; "" for any
-- ARGV[12]  ids_only      1 for ids instead of events
-- ARGV[13]  claims        highest claim number; "" for any
--
-- Returns   {now, 1 if there may be more, score, id, event...}: the next cursor, then events as in get, or ids
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "now_ms"
--- @include "open_box"
--- @include "find_first_rank"
--- @include "compile_glob"
--- @include "describe_event"
--- @include "as_number"
--- @include "read_event"

local index, limit, look, byte_limit = key[ARGV[1]], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local score, after, since, latest = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local pattern, wanted, text, ids_only, claims = ARGV[9], ARGV[10], ARGV[11], ARGV[12] == "1", ARGV[13]
local DESCRIBING = 2
local CLAIM_FIELDS, KEY_FIELDS = { "state", "claim" }, { "ordering_key", "unique_key" }
local _, refusal = open_box()
if refusal then
  return refusal
end

local filtered = pattern ~= "" or wanted ~= "" or text ~= "" or claims ~= ""
local type_matches, type_cost = compile_glob(pattern)
local work = 0

-- Reads only the fields that a filter needs: they may be long.
local function matches(id)
  work = work + 1
  if not filtered then
    return true
  end
  local hash = event_key .. id
  local event = read_event(id, CLAIM_FIELDS)
  if not event.state or (claims ~= "" and as_number(event.claim) > tonumber(claims)) then
    return false
  end
  if wanted ~= "" then
    local keys = read_event(id, KEY_FIELDS)
    if keys.ordering_key ~= wanted and keys.unique_key ~= wanted then
      return false
    end
  end
  if pattern ~= "" then
    local event_type = redis.call("HGET", hash, "event_type") or ""
    work = work + type_cost(event_type)
    if not type_matches(event_type) then
      return false
    end
  end
  if text ~= "" then
    local last_error = redis.call("HGET", hash, "last_error") or ""
    work = work + #last_error / 1000 + #last_error * #text / 100000
    return string.find(string.lower(last_error), text, 1, true)
  end
  return true
end

-- The size of an event in the reply, in bytes.
local function bytes_of(event)
  local size = #(event[3] or "")
  for _, part in ipairs(event[2]) do
    size = size + #part
  end
  return size
end

local first = find_first_rank(index, since, score, after)
local final = redis.call("ZCOUNT", index, "-inf", latest ~= "" and latest or "+inf") - 1
local last = math.min(first + look - 1, final)
local reply, bytes = { now_ms(), 0, score, after }, 0
if last < first then
  return reply
end

local found, more = redis.call("ZRANGE", index, first, last, "WITHSCORES"), last < final
for at = 1, #found, 2 do
  local id = found[at]
  if matches(id) then
    local event = ids_only and id or describe_event(id)
    if event then
      if not ids_only then
        local size = bytes_of(event)
        bytes, work = bytes + size, work + DESCRIBING + size / 4096
      end
      if bytes > byte_limit and #reply > 4 then
        more = true
        break
      end
      reply[#reply + 1] = event
    end
  end
  reply[3], reply[4] = found[at + 1], id
  if #reply - 4 == limit or work >= look then
    more = more or at + 1 < #found
    break
  end
end
reply[2] = more and 1 or 0
return reply
