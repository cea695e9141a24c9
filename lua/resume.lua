#!lua flags=allow-oom
-- resume: ends the pause of the box, or that of one ordering key. No event changes its state.
--
-- Guarantee: with a ramp, all relays together claim one event a second at first, and more and more until the ramp is over;
-- without one, an earlier ramp ends. A box or key that is not paused is left as it is, but for the ramp. Wakes up to
-- 100 idle relays.
--
-- KEYS[1]   meta     hash; names the box
-- ARGV[1]   key      ordering key; "" for the whole box
-- ARGV[2]   ramp     ms, for the whole box; "" for none
-- ARGV[3]   who      the operator
-- ARGV[4]   why      the operator's reason
--
-- Returns   1 if it was paused, else 0
-- Errors    NEWERLAYOUT

--- @include "keys"
--- @include "now_ms"
--- @include "open_box"
--- @include "find_pause_end"
--- @include "check_keys"
--- @include "check_line_keys"
--- @include "format_integer"
--- @include "resume_key"
--- @include "note_paused_keys"
--- @include "record_action"
--- @include "wake_relays"

local ordering_key, ramp, who, why = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local settings, refusal = open_box()
if refusal then
  return refusal
end
local now = now_ms()
check_keys()
redis.call("HLEN", key.limits)
local was_paused
if ordering_key == "" then
  local ends = settings.paused and find_pause_end(settings.paused)
  was_paused = ends and (ends == 0 or ends > now) and 1 or 0
else
  local ends = redis.call("ZSCORE", key.paused, ordering_key)
  was_paused = ends and tonumber(ends) > now and 1 or 0
  redis.call("HLEN", key.pauses)
  check_line_keys(ordering_key, 0)
end

redis.call("HSETNX", key.meta, "layout", LAYOUT)
local about = ""
if ordering_key == "" then
  redis.call("HDEL", key.meta, "paused", "pause_who", "pause_why", "ramp")
  if ramp ~= "" then
    redis.call("HSET", key.meta, "ramp", ramp)
    redis.call("HSET", key.limits, "ramp_at", format_integer(now), "ramp_elapsed", "0", "ramp_tokens", "1")
    about = "ramp=" .. ramp
  end
else
  resume_key(ordering_key, now)
  note_paused_keys()
  about = "key=" .. ordering_key
end
record_action("resume", who, why, nil, about)
wake_relays()
return was_paused
