-- The error of a call that would claim from a paused box.
local function make_paused_error()
  return redis.error_reply("PAUSED the box is paused; resume it to claim again")
end
