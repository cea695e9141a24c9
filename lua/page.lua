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
-- ARGV[12]  created_since lowest created_at, ms; "" for any
-- ARGV[13]  created_until highest created_at, ms; "" for any
-- ARGV[14]  what          events | claims | summaries
-- ARGV[15]  claims        highest claim number; "" for any
--
-- Returns   {now, 1 if there may be more, score, id, ids read, event...}: the next cursor, then events as in get; or
--           claims {id, claim number}, or summaries {id, event_type, last_error, score, claim number}: without bodies
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
local pattern, wanted, text = ARGV[9], ARGV[10], ARGV[11]
local created_since, created_until, what, claims = ARGV[12], ARGV[13], ARGV[14], ARGV[15]
local DESCRIBING, HEAD = 2, 5
local FIELDS, KEY_FIELDS = { "state", "claim", "created_at" }, { "ordering_key", "unique_key" }
local SUMMARY_FIELDS = { "state", "claim", "created_at", "event_type", "last_error" }
local _, refusal = open_box()
if refusal then
  return refusal
end

local by_creation = created_since ~= "" or created_until ~= ""
local earliest, newest = tonumber(created_since) or -math.huge, tonumber(created_until) or math.huge
local filtered = pattern ~= "" or wanted ~= "" or text ~= "" or claims ~= "" or by_creation
local type_matches, type_cost = compile_glob(pattern)
local work = 0

-- Reads only the fields that a filter or the reply needs: they may be long.
local function read_fields(id)
  if what == "summaries" then
    return read_event(id, SUMMARY_FIELDS)
  end
  return (filtered or what == "claims") and read_event(id, FIELDS)
end

local function matches(id, event)
  work = work + 1
  if not filtered then
    return true
  end
  local hash = event_key .. id
  if not event.state or (claims ~= "" and as_number(event.claim) > tonumber(claims)) then
    return false
  end
  local created = by_creation and tonumber(event.created_at or "")
  if by_creation and (not created or created < earliest or created > newest) then
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

local function bytes_of(parts)
  local size = 0
  for _, part in ipairs(parts) do
    size = size + #part
  end
  return size
end

-- An event for the reply, its size there in bytes, and the work of reading it.
local function describe(id, event, entered)
  if what == "claims" then
    return { id, as_number(event.claim) }, 0, 0
  end
  if what == "summaries" then
    local summary = { id, event.event_type or "", event.last_error or "", entered, event.claim or "0" }
    local size = bytes_of(summary)
    return event.state and summary, size, size / 4096
  end
  local whole = describe_event(id)
  local size = whole and #(whole[3] or "") + bytes_of(whole[2]) or 0
  return whole, size, DESCRIBING + size / 4096
end

local first = find_first_rank(index, since, score, after)
local final = redis.call("ZCOUNT", index, "-inf", latest ~= "" and latest or "+inf") - 1
local last = math.min(first + look - 1, final)
local reply, bytes = { now_ms(), 0, score, after, 0 }, 0
if last < first then
  return reply
end

local found, more = redis.call("ZRANGE", index, first, last, "WITHSCORES"), last < final
for at = 1, #found, 2 do
  local id = found[at]
  local fields = read_fields(id)
  if matches(id, fields) then
    local event, size, cost = describe(id, fields, found[at + 1])
    if event then
      bytes, work = bytes + size, work + cost
      if bytes > byte_limit and #reply > HEAD then
        more = true
        break
      end
      reply[#reply + 1] = event
    end
  end
  reply[3], reply[4], reply[5] = found[at + 1], id, reply[5] + 1
  if #reply - HEAD == limit or work >= look then
    more = more or at + 1 < #found
    break
  end
end
reply[2] = more and 1 or 0
return reply
