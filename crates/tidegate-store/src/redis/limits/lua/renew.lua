-- Renews concurrency permits. KEYS: the counter. ARGV: for how many microseconds, then permits.
-- Reply: for each 1, or 0 when it is not held any more.
local head, ttl = redis.call('ZRANGE', K[1], -1, -1)[1], A[1] + 0
local out, any = {}, false
for i = 2, #A do
  out[i - 1] = 0
  if head and redis.call('ZSCORE', K[1], A[i]) then
    redis.call('ZADD', K[1], 'XX', now + ttl, A[i])
    out[i - 1] = 1
    any = true
  end
end
if any then
  local o, a, used, span = parse(head)
  if ttl > span then
    redis.call('ZREM', K[1], head)
    redis.call('ZADD', K[1], 'inf', pack(o, a, used, ttl))
    span = ttl
  end
  redis.call('PEXPIRE', K[1], life(span))
end
return out
