-- The order in which rules were published, whatever store each instance has them from.
--
-- KEYS: digests by their order. ARGV: a digest, and 1 to make it the newest.
-- Reply: its place. Places follow the clock too, so that they go on growing when this key is lost.
local newest = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
local own = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not own or (ARGV[2] == '1' and newest[1] ~= ARGV[1]) then
  own = math.max(math.floor(now / 1000), (newest[2] or 0) + 1)
  redis.call('ZADD', KEYS[1], string.format('%.0f', own), ARGV[1])
  redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -1001)
end
redis.call('EXPIRE', KEYS[1], 34560000)
return own + 0
