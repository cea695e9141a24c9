"""The Lua scripts: loading, arguments, replies, and how much work one call may do."""
