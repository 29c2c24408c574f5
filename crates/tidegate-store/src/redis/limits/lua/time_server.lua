-- The server's clock: microseconds since the UTC epoch. Whole numbers below 2^53 are exact in Lua.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local SPARE = 1000
