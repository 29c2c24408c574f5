-- Gives concurrency permits back. KEYS: the counter. ARGV: permits, each its cost, a colon and its id.
-- Reply: for each 1, or 0 when it was not held any more.
local head = redis.call('ZRANGE', K[1], -1, -1)[1]
local out, o, a, used, span = {}
if head then o, a, used, span = parse(head) end
local before = used
for i, permit in ipairs(A) do
  out[i] = 0
  if head and redis.call('ZREM', K[1], permit) == 1 then
    used = used - string.match(permit, '^%d+')
    out[i] = 1
  end
end
if used ~= before then
  redis.call('ZREM', K[1], head)
  if redis.call('EXISTS', K[1]) == 1 then
    redis.call('ZADD', K[1], 'inf', pack(o, a, used, span))
  end
end
return out
