#!lua flags=allow-oom
-- pause: stops the claims of the box, or those of one ordering key. No event changes its state.
--
-- Guarantee: the pause ends by itself at `until`, by the server's clock; nothing has to be running for that. It replaces
-- an earlier pause of the same box or key. The time of a ramp stands still meanwhile. While a key is paused, the head of
-- its line waits; events of the key that are claimed can still be settled. A pause of the box wakes up to 100 idle relays.
--
-- KEYS[1]   meta     hash; names the box
-- ARGV[1]   key      ordering key; "" for the whole box
-- ARGV[2]   until    "" until it is resumed, "+ms" from now, or "ms" absolute
-- ARGV[3]   who      the operator
-- ARGV[4]   why      the operator's reason
--
-- Returns   {now, when the pause ends in ms or -1}; if that is not later than now, nothing was changed
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "now_ms"
--- @include "open_box"
--- @include "check_keys"
--- @include "check_line_keys"
--- @include "parse_time"
--- @include "format_integer"
--- @include "read_event"
--- @include "read_available_at"
--- @include "read_ramp"
--- @include "note_paused_keys"
--- @include "record_action"
--- @include "wake_relays"

local FIELDS = { "state", "available_at", "created_at" }
local ordering_key, ending, who, why = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local settings, refusal = open_box()
if refusal then
  return refusal
end
local now = now_ms()
local ends = ending ~= "" and parse_time(ending, now)
if ends and ends <= now then
  return { now, ends }
end
local since, until_text = format_integer(now), ends and format_integer(ends) or ""
check_keys()
local ramp = read_ramp(settings, now)
if ordering_key ~= "" then
  redis.call("ZCARD", key.paused)
  redis.call("HLEN", key.pauses)
  check_line_keys(ordering_key, 0)
end

redis.call("HSETNX", key.meta, "layout", LAYOUT)
if ordering_key == "" then
  redis.call("HSET", key.meta, "paused", since .. "-" .. until_text, "pause_who", who, "pause_why", why)
  if ramp then
    redis.call("HSET", key.limits, "ramp_at", ends and until_text or "0", "ramp_elapsed", format_integer(ramp.elapsed))
  end
  wake_relays()
else
  redis.call("ZADD", key.paused, ends and until_text or "+inf", ordering_key)
  redis.call("HSET", key.pauses, ordering_key, table.concat({ since, who, why }, "\t"))
  note_paused_keys()
  local head = redis.call("ZRANGE", line_key .. ordering_key, "0", "0")[1]
  local event = head and read_event(head, FIELDS)
  if event and event.state == "PENDING" then
    redis.call("ZREM", key.pending, head)
    redis.call("ZREM", key.suspect, head)
    redis.call("ZADD", key.waiting, read_available_at(event.available_at, event.created_at, now), head)
  end
end
local about = {}
if ordering_key ~= "" then
  about[1] = "key=" .. ordering_key
end
if ends then
  about[#about + 1] = "until=" .. until_text
end
record_action("pause", who, why, nil, table.concat(about, " "))
return { now, ends or -1 }
