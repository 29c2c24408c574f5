-- Tests choose the time: it is the last argument.
local now = tonumber(table.remove(ARGV))
-- Keys still expire by the server's clock: late enough for any test.
local SPARE = 1000000
