#!lua flags=no-writes
-- locate: reads where events are, how many are before them, and the head of their line, to explain why they wait.
--
-- Guarantee: changes nothing; O(log n) in the number of events, and reports at most 14 of them. One consistent view.
--
-- KEYS[1]   meta     hash; names the box
-- ARGV[1]   kind     event | line | unique | box
-- ARGV[2]   name     the event id, ordering_key or unique_key; "" for the box
--
-- Returns   {now, id of the suspect that is claimed or false, members of the line or unique key, event...}: the event,
--           the head of the line, the first holders of the unique key, or for the box the first event of each index of
--           live events, the first dead head, and the claimed event or suspect with the most expired leases in a row;
--           and the heads of their lines, and that suspect. Each {id, event as in get or false, {score or false in pending, waiting, suspect, claimed, published, dead, lost}, number of
--           due events before it, {ordering_key, length of the line, rank in it or false, when it was blocked or false,
--           head or false, end of the pause of the ordering_key or false} or false}
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "now_ms"
--- @include "open_box"
--- @include "describe_event"
--- @include "is_suspect_claimed"
--- @include "find_rank_after"
--- @include "read_event"
--- @include "as_number"

local INDEXES = { "pending", "waiting", "suspect", "claimed", "published", "dead", "lost" }
local LIVE = { "pending", "suspect", "waiting", "claimed" }
local HOLDERS = 3
local CANDIDATES = 10
local kind, name = ARGV[1], ARGV[2]
local _, refusal = open_box()
if refusal then
  return refusal
end

local function find_rank(index, score, id)
  return score and find_rank_after(index, score, id) - 1
end

local function find_line(ordering, id)
  local line = line_key .. ordering
  return {
    ordering,
    redis.call("ZCARD", line),
    find_rank(line, redis.call("ZSCORE", line, id), id),
    redis.call("ZSCORE", key.blocked, ordering),
    redis.call("ZRANGE", line, 0, 0)[1] or false,
    redis.call("ZSCORE", key.paused, ordering),
  }
end

-- In the order of claims: the oldest first, and a suspect before ordinary events of the same age.
local function count_before(id, scores)
  if scores[1] then
    return find_rank(key.pending, scores[1], id) + redis.call("ZCOUNT", key.suspect, "-inf", scores[1])
  elseif scores[3] then
    return find_rank(key.suspect, scores[3], id) + redis.call("ZCOUNT", key.pending, "-inf", "(" .. scores[3])
  end
  return 0
end

local reply, seen = { now_ms(), false, 0 }, {}
local function look(id, as_head)
  if not id or seen[id] then
    return
  end
  seen[id] = true
  local scores = {}
  for position, index in ipairs(INDEXES) do
    scores[position] = redis.call("ZSCORE", key[index], id)
  end
  local event, ordering = describe_event(id), redis.call("HGET", event_key .. id, "ordering_key")
  local line = ordering and find_line(ordering, id)
  reply[#reply + 1] = { id, event or false, scores, count_before(id, scores), line }
  -- In damaged lines, a head may belong to another line.
  if not as_head then
    look(line and line[5], true)
  end
end

-- The event that most likely crashes relays. A restarted relay claims it again at once, so it is rarely in the index
-- `suspect`. The suspect that was claimed last is looked at first: it has been claimed alone.
local function find_crasher()
  local fields, crasher, most = { "state", "expiries" }, false, 0
  local function compare(id)
    local event = read_event(id, fields)
    local expiries = as_number(event.expiries)
    if (event.state == "CLAIMED" or event.state == "PENDING") and expiries > most then
      crasher, most = id, expiries
    end
  end
  local last = string.match(redis.call("GET", key.alone) or "", " (.*)$")
  if last then
    compare(last)
  end
  for _, index in ipairs({ "claimed", "suspect" }) do
    for _, id in ipairs(redis.call("ZRANGE", key[index], 0, CANDIDATES - 1)) do
      compare(id)
    end
  end
  return crasher
end

if is_suspect_claimed() then
  reply[2] = string.match(redis.call("GET", key.alone), " (.*)$")
end
if kind == "event" then
  look(name)
elseif kind == "line" then
  reply[3] = redis.call("ZCARD", line_key .. name)
  look(redis.call("ZRANGE", line_key .. name, 0, 0)[1])
elseif kind == "unique" then
  reply[3] = redis.call("ZCARD", unique_key .. name)
  for _, id in ipairs(redis.call("ZRANGE", unique_key .. name, 0, HOLDERS - 1)) do
    look(id)
  end
else
  for _, index in ipairs(LIVE) do
    look(redis.call("ZRANGE", key[index], 0, 0)[1])
  end
  local blocked = redis.call("ZRANGE", key.blocked, 0, 0)[1]
  look(blocked and redis.call("ZRANGE", line_key .. blocked, 0, 0)[1])
  look(find_crasher())
end
look(reply[2])
return reply
